/**
 * Draws one request in its lane. The colour identifies the request; the form shows what happened.
 *
 *   prefill     a 14 px bar with its token count; tokens found in the cache are its hatched top
 *   decode      6 px on the baseline, one dash per step (thinner in narrow lanes)
 *   drafts      a cell each above the dash, filled if accepted, and "1+4" if there is room
 *   preempted   an ink bar, dashes in the request's hue, an arrowhead where it resumes
 *   stalled     dots: it was running, but the token budget was spent
 *   in vain     a box with crossed lines, in the colour of lost time
 *   finished    a mark and the reason
 */

import { adapterOf } from "../model/adapters.ts";
import type { Model } from "../model/model.ts";
import type { RequestSpan, Segment } from "../model/request_spans.ts";
import type { CanvasPainter } from "./canvas_painter.ts";
import { type Drafts, draftWords, drawDrafts } from "./lane_drafts.ts";
import type { Stay } from "./lane_packing.ts";
import { type Chunk, countWords, isChunk, type LaneWord, NAME } from "./lane_words.ts";
import type { Scale } from "./time_axis.ts";

/** px */
export interface LaneForms {
  below: number; // the baseline
  bar: number;
  decode: number;
  draft: number;
  mark: number;
  words: number; // text above the baseline; 0: there is no room
  over: number; // text over drafts; 0: there is no room
}

export interface LaneScene {
  model: Model;
  scale: Scale;
  packing: { lanes: Stay[][] };
  laneHeight: number;
  end: number; // x where a lane ends
  narrow: boolean;
}

/** of one request's lane */
export interface LanePen extends LaneForms {
  painter: CanvasPainter;
  scale: Scale;
  base: number; // y of the baseline
  middle: number; // y of the middle of a decode
  paint: (x: number, y: number, width: number, height: number) => void; // with the request's mark
  hue: string;
}

/** steps */
type Range = { from: number; to: number };

/** The dimensions of the forms in a lane. */
export function formsOf(pitch: number): LaneForms {
  const forms = { below: 4, bar: 14, decode: 6, mark: 11, words: 8 };
  if (pitch >= 22) return { ...forms, draft: 4, over: 12 };
  if (pitch >= 19) return { ...forms, draft: 3, over: 11 };
  if (pitch >= 16) return { below: 3, bar: 12, decode: 5, draft: 3, mark: 10, words: 6, over: 0 };
  return { below: 2, bar: 10, decode: 5, draft: 3, mark: 9, words: 0, over: 0 };
}

const WASTED = 9; // px of a decode in vain; a dash has 5
const FINISH_ROOM = 46; // px before the next bar that the reason of an end needs
const TINY = 8; // px of a whole request: too few to draw its parts

/** Draws one stay of a request in a lane with its baseline at `base`. Returns the labels that belong beside it. */
export function drawLife(
  painter: CanvasPainter,
  scene: LaneScene,
  stay: Stay,
  base: number,
): LaneWord[] {
  const { scale, model, laneHeight } = scene;
  const span = model.requests[stay.index];
  const forms = formsOf(laneHeight);
  if (scale.end(stay.to) - scale.x(stay.from) < TINY) {
    drawTiny(painter, scale, span, stay, base, forms);
    return [];
  }
  const lane: LanePen = {
    ...forms,
    painter,
    scale,
    base,
    middle: base - forms.decode / 2,
    paint: (x, y, width, height) => painter.mark(x, y, width, height, span.lane),
    hue: painter.hue(span.lane),
  };
  const words: LaneWord[] = [];
  let isNamed = false;
  let hasCount = false;
  const first = Math.max(scale.first, stay.from);
  const last = Math.min(scale.last, stay.to);
  drawGround(lane, span, stay, model.lastStep);
  for (const [i, segment] of span.segments.entries()) {
    const range = { from: segment.from, to: segment.to ?? model.lastStep };
    if (range.to < first || range.from > last) continue;
    if (segment.wasted) {
      drawWasted(lane, segment);
      continue;
    }
    switch (segment.kind) {
      case "decode":
        drawDecodes(lane, range);
        if (!segment.drafts) break;
        drawDrafts(lane, segment as Segment & Drafts);
        if (forms.over)
          words.push(draftWords(painter, scene, segment as Segment & Drafts, base - forms.over));
        break;
      case "waiting": // before its first admission: the waiting band shows it
        break;
      case "preempted":
        drawGap(lane, range, segment.resume != null);
        break;
      case "stalled":
        drawStall(lane, range);
        break;
      default: {
        drawBar(lane, segment as Chunk);
        const isLast = !isChunk(span.segments[i + 1], segment);
        if (isLast && forms.words && scale.width >= 3) {
          const word = countWords(scene, span, i, base, forms);
          const takesName: boolean = !isNamed && painter.measure(span.name, NAME) <= word.room;
          words.push({ ...word, ...(takesName && { name: span.name, whose: adapterOf(span) }) });
          isNamed ||= takesName;
          hasCount = true;
        }
      }
    }
  }
  if (!isNamed && !hasCount && forms.words)
    words.unshift(nameWord(scene, span, stay, base - forms.words));
  if (span.finished && span.finished.step <= stay.to)
    words.push(...drawFinish(lane, scene, span, stay));
  return words;
}

/** Draws a request of a few pixels: a dash, and an ink bar where it was preempted. */
function drawTiny(
  painter: CanvasPainter,
  scale: Scale,
  span: RequestSpan,
  { from, to }: Stay,
  base: number,
  { decode, mark }: LaneForms,
) {
  const x = scale.x(from);
  painter.fill(
    x,
    base - decode,
    Math.max(1, scale.end(to) - x - 0.5),
    decode,
    painter.hue(span.lane),
  );
  for (const { step } of span.preemptions)
    if (step >= from && step <= to)
      painter.fill(scale.x(step), base - mark, 2, mark, painter.theme.ink);
}

/** The name of a request without a bar in view: at its beginning, or at the left edge. */
function nameWord({ scale, model }: LaneScene, span: RequestSpan, stay: Stay, y: number): LaneWord {
  const x = Math.max(scale.x(stay.from), scale.left) + 2;
  const from = Math.max(stay.from, scale.first);
  const next = span.segments.find(
    ({ kind, from: begin }) => begin > from && kind !== "decode" && kind !== "waiting",
  );
  const end = next ? scale.x(next.from) : scale.end(span.finished?.step ?? model.lastStep);
  return { name: span.name, text: adapterOf(span), x, y, room: end - x, until: stay.from };
}

/** A hairline from the first step in which it ran to its last. */
function drawGround(
  { painter, scale, base }: LanePen,
  span: RequestSpan,
  stay: Stay,
  lastStep: number,
) {
  const end = span.finished?.step ?? lastStep;
  const begin = span.segments.find(({ kind }) => kind !== "waiting")?.from ?? end + 1;
  if (begin > Math.min(end, stay.to)) return;
  painter.fill(scale.x(begin), base, scale.end(end) - scale.x(begin), 1, painter.theme.rule);
}

function drawDecodes({ paint, scale, base, decode }: LanePen, { from, to }: Range) {
  const first = Math.max(from, scale.first);
  const last = Math.min(to, scale.last);
  if (scale.width < 4) {
    const width = Math.max(3, scale.end(last) - scale.x(first));
    paint(scale.x(first), base - decode, width, decode);
    return;
  }
  for (let step = first; step <= last; step += 1) {
    const x = scale.x(step) + 0.5;
    paint(x, base - decode, Math.max(1, scale.end(step) - x - 0.5), decode);
  }
}

function drawBar(
  { painter, scale, base, paint, hue, bar }: LanePen,
  { from, count, found }: Chunk,
) {
  const slit = scale.width < 4 ? 0 : 0.5;
  const x = scale.x(from) + slit;
  const width = Math.max(3, scale.end(from) - x - slit);
  const share = count / (count + found);
  const computed = found ? Math.max(4, Math.min(bar - 4, bar * share)) : bar;
  paint(x, base - computed, width, computed);
  if (!found) return;
  painter.fill(x, base - bar, width, bar - computed, painter.hatch(hue, 1.6));
  painter.frame(x, base - bar, width, bar - computed + 1, hue);
}

function drawGap(
  { painter, scale, base, middle, hue, mark }: LanePen,
  { from, to }: Range,
  resumes: boolean,
) {
  const left = scale.x(from);
  const right = scale.end(to);
  painter.line(left + 1, base - mark, left + 1, base, painter.theme.ink, 2);
  if (right - left > 10) {
    painter.line(left + 3, middle, right - (resumes ? 6 : 0), middle, hue, 3, [3, 3]);
  }
  if (resumes) painter.tip(right, middle, "right", hue);
}

function drawStall({ painter, scale, middle }: LanePen, { from, to }: Range) {
  const { muted } = painter.theme;
  painter.line(scale.x(from), middle, scale.end(to), middle, muted, 1.5, [1.5, 3]);
}

/** Draws the row of step `from`, which was computed in vain. */
function drawWasted({ painter, scale, base, bar }: LanePen, { from, kind }: Segment) {
  const x = scale.x(from) + 0.5;
  const width = Math.max(3, scale.end(from) - x - 0.5);
  const height = kind === "decode" ? WASTED : bar;
  const { lost } = painter.theme;
  painter.fill(x, base - height, width, height, painter.crossHatch(lost));
  painter.frame(x, base - height, width, height, lost);
}

/** The mark at the end; the reason follows it if it has room before the next request in the lane. */
function drawFinish(
  { painter, scale, base, hue, mark }: LanePen,
  { packing, end }: LaneScene,
  span: RequestSpan,
  stay: Stay,
): LaneWord[] {
  const { step, reason } = span.finished as NonNullable<RequestSpan["finished"]>;
  const x = scale.end(step);
  if (x < scale.left || x > scale.right + 2) return [];
  painter.line(x + 1, base - mark, x + 1, base, hue, 3);
  const lane = packing.lanes[stay.lane];
  const next = lane[lane.indexOf(stay) + 1];
  const room = (next ? scale.x(next.from) : end) - x - 5;
  return next && room < FINISH_ROOM ? [] : [{ text: reason, x: x + 5, y: base, muted: true, room }];
}
