/** Draws a request's wait for its first seat, in pictures where each request has a row of its own. */

import type { RequestSpan } from "../model/request_spans.ts";
import type { CanvasPainter } from "./canvas_painter.ts";
import type { Scale } from "./time_axis.ts";

const MIDDLE = 3; // px above the baseline
const TICK = 4;

/** A line from the arrival, which may be in the middle of a step, to the step of the admission. */
export function drawWaits(
  painter: CanvasPainter,
  scale: Scale,
  { segments, arrivedAt }: RequestSpan,
  base: number,
  lastStep: number,
) {
  const { muted } = painter.theme;
  const y = base - MIDDLE;
  for (const { kind, from, to } of segments) {
    if (kind !== "waiting") continue;
    const left = Math.max(scale.left, scale.moment(arrivedAt) ?? scale.x(from)); // perhaps paused before
    painter.line(left, y, scale.end(to ?? lastStep), y, muted, 1.5);
    painter.line(left, y - TICK, left, y + TICK, muted, 1.5);
  }
}
