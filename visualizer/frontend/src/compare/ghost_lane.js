/** Draws a request of the other run as an outline: 5 px high, 9 px where its prompt is computed. */

/** @import { CanvasPainter } from "../drawing/canvas_painter.js" */
/** @import { Scale } from "../drawing/time_axis.js" */
/** @import { Model } from "../model/model.js" */
/** @import { RequestSpan } from "../model/request_spans.js" */

const DECODE = 5;
const PREFILL = 9;
const LINE = 1.2;

/**
 * Draws `span` below `base` from the step `from` on.
 *
 * @param {CanvasPainter} painter @param {{scale: Scale, model: Model}} run @param {RequestSpan} span
 * @param {number} base @param {number} from
 */
export function drawOutline(painter, { scale, model }, span, base, from) {
  const hue = painter.hue(span.lane);
  for (const segment of span.segments) {
    const last = segment.to ?? model.lastStep;
    if (last < from) continue;
    const left = scale.x(Math.max(from, segment.from));
    const right = scale.end(last);
    if (segment.kind === "waiting" || segment.kind === "stalled" || segment.kind === "preempted")
      drawGap(painter, segment.kind, left, right, base);
    else outline(painter, left, right, base, segment.kind === "decode" ? DECODE : PREFILL, hue);
  }
}

/**
 * A wait is dotted, the time after a preemption dashed behind an ink bar.
 *
 * @param {CanvasPainter} painter @param {string} kind @param {number} left @param {number} right @param {number} base
 */
function drawGap(painter, kind, left, right, base) {
  const { ink, muted } = painter.theme;
  const y = base - DECODE / 2;
  if (kind === "preempted") painter.line(left + 1, base - PREFILL, left + 1, base, ink, 2);
  const dash = kind === "preempted" ? [3, 3] : [1.5, 2];
  if (right - left > 3) painter.line(left + 2, y, right, y, muted, 1, dash);
}

/**
 * @param {CanvasPainter} painter @param {number} left @param {number} right @param {number} base
 * @param {number} height @param {string} hue
 */
function outline(painter, left, right, base, height, hue) {
  const width = Math.max(3, right - left - 0.5);
  painter.fill(left, base - height, width, height, painter.theme.ground);
  painter.frame(left, base - height, width, height, hue, LINE);
}
