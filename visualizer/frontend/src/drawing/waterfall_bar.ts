/**
 * A request's bar: its spans from left to right. Families differ by height and by temperature: work is cool and
 * high, waiting is warm and low, lost time is red.
 */

import { LOST, type Span, WAITING } from "../model/waterfall.ts";
import type { CanvasPainter } from "./canvas_painter.ts";
import { causeColour, causeWords, fillCause } from "./causes.ts";

/** from, to: px */
type Part = { cause: string; about: number | null; from: number; to: number };

export const BAR = 22; // px
const DECODE = 12;
const WAIT = 9;
const LEAST = 0.6; // px; narrower spans are drawn as one
const ROOM = 10; // px beside a label
const LABELLED = new Set([...WAITING, "preempted", "paused"]);

/** The spans of a bar as drawn: neighbours with one cause are one part, and narrow ones have the look of the widest. */
export function partsOf(spans: Span[], x: (time: number) => number): Part[] {
  const parts: Part[] = [];
  let widest = 0; // of what the last part stands for
  for (const { start, end, cause, about } of spans) {
    const [from, to] = [x(start), x(end)];
    const width = to - from;
    const last = parts.at(-1);
    const isSame = last?.cause === cause && last.about === about;
    const isSliver = cause === "between_passes" && width < LEAST;
    const isNarrow =
      last &&
      Math.max(width, from - last.from) < LEAST &&
      ![cause, last.cause].includes("preempted");
    if (last && (isSame || isSliver || isNarrow)) last.to = to;
    else parts.push({ cause, about, from, to });
    if (isSame) widest += width;
    else if (!isSliver && !(isNarrow && width <= widest)) {
      widest = width;
      Object.assign(parts.at(-1) as Part, { cause, about });
    }
  }
  return parts;
}

/** Draws parts on the baseline `y`. */
export function drawBar(
  painter: CanvasPainter,
  parts: Part[],
  y: number,
  { high = BAR }: { high?: number } = {},
) {
  for (const part of parts) drawPart(painter, part, y, high);
}

/**
 * Labels of the parts that have room for one: what a request waits for, and when it is preempted. Waiting for one
 * reason behind several requests, one after the other, has one label.
 */
export function drawLabels(
  painter: CanvasPainter,
  parts: Part[],
  y: number,
  nameOf: (request: number) => string,
  { high = BAR }: { high?: number } = {},
) {
  for (const { cause, heads, from, to } of labelled(parts)) {
    const [head] = heads;
    const label = heads.size === 1 && head !== null ? `behind ${nameOf(head)}` : causeWords(cause);
    if (painter.measure(label) + ROOM > to - from) continue;
    painter.text(label, from + 5, y - high + 10, { halo: painter.theme.ground });
  }
}

/** Words beside a vertical line, on its left if they do not fit between it and `right`. */
export function drawFlag(
  painter: CanvasPainter,
  words: string,
  x: number,
  y: number,
  right: number,
) {
  const isLeft = x + painter.measure(words, { bold: true }) + 8 > right;
  const align = isLeft ? "right" : "left";
  painter.text(words, isLeft ? x - 4 : x + 4, y, { bold: true, halo: painter.theme.ground, align });
}

function labelled(parts: Part[]) {
  const runs: {
    cause: string;
    isBehind: boolean;
    heads: Set<number | null>;
    from: number;
    to: number;
  }[] = [];
  for (const { cause, about, from, to } of parts) {
    const head = WAITING.includes(cause) ? about : null;
    const last = runs.at(-1);
    if (last?.cause === cause && last.isBehind === (head !== null)) {
      last.heads.add(head);
      last.to = to;
    } else runs.push({ cause, isBehind: head !== null, heads: new Set([head]), from, to });
  }
  return runs.filter(({ cause }) => LABELLED.has(cause) && cause !== "after_preemption");
}

function drawPart(painter: CanvasPainter, part: Part, y: number, high: number) {
  const { theme } = painter;
  const { cause, from, to } = part;
  const color = causeColour(theme, cause);
  const gap = to - from > 3 ? 0.7 : 0;
  const width = to - from - gap;
  switch (cause) {
    case "prefill":
    case "failed_step":
      painter.fill(from, y - high, width, high, color);
      return;
    case "decode":
      painter.fill(from, y - DECODE, to - from, DECODE, color);
      return;
    case "recomputed":
      painter.fill(from, y - high, width, high, color);
      painter.fill(from, y - high, width, high, painter.backHatch(theme.ground));
      return;
    case "others_prefill":
      if (to - from < 2.4) {
        painter.faded(0.6, () => painter.fill(from, y - DECODE, to - from, DECODE, color));
        return;
      }
      painter.faded(0.18, () => painter.fill(from, y - DECODE, width, DECODE, color));
      painter.frame(from, y - DECODE, width, DECODE, color);
      return;
    case "preempted":
      painter.frame(from, y - WAIT, Math.max(2, width), WAIT, color, 1.5, [4, 2.5]);
      painter.fill(from - 0.5, y - high, 2.2, high, color);
      return;
    case "between_passes":
      painter.fill(from, y - 3, to - from, 3, color);
      return;
    case "paused":
    case "unknown":
      painter.frame(from, y - WAIT, Math.max(1, width), WAIT, color, 1, [2, 2]);
      return;
    default:
      drawWait(painter, part, width, y);
  }
}

/** A low bar under a line, at half strength behind another request; a dashed line after a preemption. */
function drawWait(painter: CanvasPainter, { cause, about, from }: Part, width: number, y: number) {
  const color = causeColour(painter.theme, cause);
  painter.faded(about === null ? 1 : 0.5, () =>
    fillCause(painter, cause, [from, y - WAIT, width, WAIT]),
  );
  if (cause === "after_preemption") {
    const line = causeColour(painter.theme, "preempted");
    painter.line(from, y - WAIT + 1, from + width, y - WAIT + 1, line, 2, [3, 2]);
  } else painter.fill(from, y - WAIT, width, 2, color);
}

/** The family of a cause, as the key has it. */
export function familyOf(cause: string) {
  if (WAITING.includes(cause)) return "waiting";
  if (LOST.includes(cause)) return "lost";
  return ["prefill", "decode"].includes(cause) ? "work" : "engine";
}
