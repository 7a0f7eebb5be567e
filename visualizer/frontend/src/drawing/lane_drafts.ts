/**
 * Drafts in a lane: a row of cells above the decode's dash, one per draft that the step verified, in the order
 * of the text. Accepted drafts are filled, rejected ones outlined.
 */

import type { CanvasPainter, Rect } from "./canvas_painter.ts";
import type { LanePen, LaneScene } from "./lane.ts";
import type { LaneWord } from "./lane_words.ts";

/** of a step */
export type Drafts = { from: number; drafts: number; accepted: number };

const GAP = 1; // between the dash and the drafts
const CELL = 3; // px; narrower drafts become one cell, filled as far as they were accepted
const LEAST = 6; // px of a step; narrower ones show the dash alone
export const LABELLED = 20; // px of a step with room for "1+4"
const SMALL = { size: 10.5 };

/** Draws the drafts of one step above its dash. */
export function drawDrafts(
  { painter, scale, base, hue, decode, draft }: LanePen,
  { from, drafts, accepted }: Drafts,
) {
  const x = scale.x(from) + 0.5;
  const width = scale.end(from) - x - 0.5;
  if (width < LEAST) return;
  const y = base - decode - GAP - draft;
  const each = (width + 1) / drafts;
  if (each < CELL + 1) {
    painter.fill(x, y, (width * accepted) / drafts, draft, hue);
    painter.frame(x, y, width, draft, hue);
    return;
  }
  for (let place = 0; place < drafts; place += 1) {
    const cell: Rect = [x + place * each, y, each - 1, draft];
    if (place < accepted) painter.fill(...cell, hue);
    else painter.frame(...cell, hue);
  }
}

/** "1+4" above the drafts of a step: it computed one token and four drafts. */
export function draftWords(
  painter: CanvasPainter,
  { scale }: LaneScene,
  { from, drafts }: Drafts,
  base: number,
): LaneWord {
  const text = `1+${drafts}`;
  const x = scale.x(from);
  const width = scale.end(from) - x;
  const inset = Math.max(0, (width - painter.measure(text, SMALL)) / 2);
  return { text, x: x + inset, y: base, room: width - 2, muted: true, until: from, behind: true };
}
