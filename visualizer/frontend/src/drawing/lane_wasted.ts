/** A row of a lane that was computed in vain: a box with crossed lines, in the colour of lost time. */

import type { Segment } from "../model/request_spans.ts";
import type { LanePen } from "./lane.ts";

const HEIGHT = 9; // px; a decode's dash has 5

/** Draws the row of step `from`. */
export function drawWasted({ painter, scale, base, bar }: LanePen, { from, kind }: Segment) {
  const x = scale.x(from) + 0.5;
  const width = Math.max(3, scale.end(from) - x - 0.5);
  const height = kind === "decode" ? HEIGHT : bar;
  const { lost } = painter.theme;
  painter.fill(x, base - height, width, height, painter.crossHatch(lost));
  painter.frame(x, base - height, width, height, lost);
}
