/** Draws a request of the other run as an outline: 5 px high, 9 px where its prompt is computed. */

import type { CanvasPainter } from "../drawing/canvas_painter.ts";
import type { Scale } from "../drawing/time_axis.ts";
import type { Model } from "../model/model.ts";
import type { RequestSpan } from "../model/request_spans.ts";

const DECODE = 5;
const PREFILL = 9;
const LINE = 1.2;

/** Draws `span` below `base` from the step `from` on. */
export function drawOutline(
  painter: CanvasPainter,
  { scale, model }: { scale: Scale; model: Model },
  span: Pick<RequestSpan, "segments" | "lane">,
  base: number,
  from: number,
) {
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

/** A wait is dotted, the time after a preemption dashed behind an ink bar. */
function drawGap(painter: CanvasPainter, kind: string, left: number, right: number, base: number) {
  const { ink, muted } = painter.theme;
  const y = base - DECODE / 2;
  if (kind === "preempted") painter.line(left + 1, base - PREFILL, left + 1, base, ink, 2);
  const dash = kind === "preempted" ? [3, 3] : [1.5, 2];
  if (right - left > 3) painter.line(left + 2, y, right, y, muted, 1, dash);
}

function outline(
  painter: CanvasPainter,
  left: number,
  right: number,
  base: number,
  height: number,
  hue: string,
) {
  const width = Math.max(3, right - left - 0.5);
  painter.fill(left, base - height, width, height, painter.theme.ground);
  painter.frame(left, base - height, width, height, hue, LINE);
}
