/**
 * One request's life, drawn in a lane. Colour says who; form says what happened.
 *
 *   prefill     a 14 px bar with its token count; what was found in the cache is its hatched top
 *   decode      5 px on the baseline, one dash a step
 *   waiting     a thin line with a tick where it began, and its reasons in words
 *   preempted   an ink bar, dashes in the request's hue, an arrowhead where it resumes
 *   stalled     dots: it runs, but the budget had no tokens left for it
 *   finished    a mark and the reason
 */

import { countWords, isChunk, waitLabel } from "./lane_words.js";

const BAR = 14;
const DECODE = 5;
const MARK = 11;

/** Draws a life whose lane has its baseline at `base`. Returns the words that belong beside it. */
export function drawLife(pencil, scene, life, base) {
  const { scale, model } = scene;
  const lane = {
    pencil,
    scale,
    base,
    middle: base - DECODE / 2,
    paint: pencil.paint(life.hueIndex),
    hue: pencil.hue(life.hueIndex),
  };
  const words = [];
  drawGround(lane, life, model.lastStep);
  for (const [i, segment] of life.segments.entries()) {
    const span = { from: segment.from, to: segment.to ?? model.lastStep };
    if (span.to < scale.first || span.from > scale.last) continue;
    switch (segment.kind) {
      case "decode":
        drawDecodes(lane, span);
        break;
      case "waiting":
        drawWaiting(lane, span);
        words.push(...waitLabel(pencil, scene, life, segment, lane.middle - 4));
        break;
      case "preempted":
        drawGap(lane, span, segment.resume != null);
        break;
      case "stalled":
        drawStall(lane, span);
        break;
      default: {
        drawBar(lane, segment);
        const last = !isChunk(life.segments[i + 1], segment);
        if (last && scale.width >= 3) words.push(countWords(scene, life, i, base - 8));
      }
    }
  }
  if (life.finished) words.push(...drawFinish(lane, scene, life));
  return words;
}

/** A hairline from the first step it ran to its last. */
function drawGround({ pencil, scale, base }, life, lastStep) {
  const end = (life.finished?.step ?? lastStep) + 1;
  const begin = life.segments.find(({ kind }) => kind !== "waiting")?.from ?? end;
  const width = scale.x(end) - scale.x(begin);
  if (width > 0) pencil.fill(scale.x(begin), base, width, 1, pencil.theme.rule);
}

function drawDecodes({ pencil, scale, base, paint }, { from, to }) {
  const first = Math.max(from, scale.first);
  const last = Math.min(to, scale.last);
  if (scale.width < 4) {
    const width = Math.max(3, (last + 1 - first) * scale.width);
    pencil.fill(scale.x(first), base - DECODE, width, DECODE, paint);
    return;
  }
  for (let step = first; step <= last; step += 1) {
    pencil.fill(scale.x(step) + 0.5, base - DECODE, scale.width - 1, DECODE, paint);
  }
}

function drawBar({ pencil, scale, base, paint, hue }, { from, count, found }) {
  const slit = scale.width < 4 ? 0 : 0.5;
  const x = scale.x(from) + slit;
  const width = Math.max(3, scale.width - 2 * slit);
  const share = count / (count + found);
  const computed = found ? Math.max(4, Math.min(BAR - 4, BAR * share)) : BAR;
  pencil.fill(x, base - computed, width, computed, paint);
  if (!found) return;
  pencil.fill(x, base - BAR, width, BAR - computed, pencil.hatch(hue, 1.6));
  pencil.frame(x, base - BAR, width, BAR - computed + 1, hue);
}

function drawWaiting({ pencil, scale, middle }, { from, to }) {
  const left = scale.x(from);
  const { muted } = pencil.theme;
  pencil.line(left, middle, scale.x(to + 1), middle, muted, 1.5);
  pencil.line(left, middle - 4, left, middle + 4, muted, 1.5);
}

function drawGap({ pencil, scale, base, middle, hue }, { from, to }, resumes) {
  const left = scale.x(from);
  const right = scale.x(to + 1);
  pencil.line(left + 1, base - MARK, left + 1, base, pencil.theme.ink, 2);
  if (right - left > 10) {
    pencil.line(left + 3, middle, right - (resumes ? 6 : 0), middle, hue, 3, [3, 3]);
  }
  if (resumes) pencil.tip(right, middle, "right", hue);
}

function drawStall({ pencil, scale, middle }, { from, to }) {
  const { muted } = pencil.theme;
  pencil.line(scale.x(from), middle, scale.x(to + 1), middle, muted, 1.5, [1.5, 3]);
}

/** The mark where it ended; the reason goes behind it, up to whoever has the lane next. */
function drawFinish({ pencil, scale, base, hue }, { packing, spans, end }, life) {
  const { step, reason } = life.finished;
  const x = scale.x(step + 1);
  if (x < scale.left || x > scale.right + 2) return [];
  pencil.line(x + 1, base - MARK, x + 1, base, hue, 3);
  const lane = packing.lanes[packing.laneOf[life.hueIndex]];
  const next = lane[lane.indexOf(life.hueIndex) + 1];
  const room = (next == null ? end : scale.x(spans[next].from)) - x - 5;
  return [{ text: reason, x: x + 5, y: base, muted: true, room }];
}
