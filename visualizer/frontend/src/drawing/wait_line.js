/** Draws a request's wait for its first seat, in pictures where each request has a row of its own. */

/** @import { RequestSpan } from "../model/request_spans.js" */
/** @import { CanvasPainter } from "./canvas_painter.js" */
/** @import { Scale } from "./time_axis.js" */

const MIDDLE = 3; // px above the baseline
const TICK = 4;

/**
 * A line from the arrival, which may be in the middle of a step, to the step of the admission.
 *
 * @param {CanvasPainter} painter @param {Scale} scale @param {RequestSpan} span @param {number} base
 * @param {number} lastStep
 */
export function drawWaits(painter, scale, { segments, arrivedAt }, base, lastStep) {
  const { muted } = painter.theme;
  const y = base - MIDDLE;
  for (const { kind, from, to } of segments) {
    if (kind !== "waiting") continue;
    const left = Math.max(scale.left, scale.moment(arrivedAt) ?? scale.x(from)); // perhaps paused before
    painter.line(left, y, scale.end(to ?? lastStep), y, muted, 1.5);
    painter.line(left, y - TICK, left, y + TICK, muted, 1.5);
  }
}
