/** Memory at a glance: all KV blocks after a step as small cells, and how full they are over time. */

import type { Block } from "../model/frame.ts";
import type { Model } from "../model/model.ts";
import { type BlockGrid, grid } from "./block_grid.ts";
import type { CanvasPainter, Rect } from "./canvas_painter.ts";
import type { Scale } from "./time_axis.ts";

const COLUMNS = 16;
const MOST_ROWS = 8;
const GAP = 1.5;

/** The cells of `count` blocks in `width` pixels. Two maps of one width and one `most` have cells of one size. */
export function miniGrid(count: number, width: number, most: number = count): BlockGrid {
  let columns = COLUMNS;
  while (most / columns > MOST_ROWS) columns *= 2;
  const pitch = (width + GAP) / columns;
  const side = Math.max(1, pitch - GAP);
  const body = Math.min(side, 9);
  const cells = grid(count, width, 0, { label: 0, body, gapX: GAP, gapY: GAP, columns, left: 0 });
  return { ...cells, cellWidth: side, height: cells.height + GAP };
}

/** Draws used blocks over time as an area of `height` px on `bottom`, and cached ones hatched above it. */
export function drawMemoryArea(
  painter: CanvasPainter,
  { measures, firstStep, lastStep, settings }: Model,
  scale: Scale,
  bottom: number,
  height: number,
) {
  const { theme } = painter;
  const unit = height / Math.max(1, settings.num_blocks);
  const last = Math.min(scale.last, lastStep);
  for (let step = Math.max(firstStep, scale.first); step <= last; step += 1) {
    const index = step - firstStep;
    const [used, cached] = [measures.used.at(index) * unit, measures.cached.at(index) * unit];
    const [x, width] = [scale.x(step), scale.width + 0.3];
    painter.fill(x, bottom - used, width, used, theme.used);
    painter.fill(x, bottom - used - cached, width, cached, painter.hatch(theme.hatch));
  }
}

/** Draws `blocks` (those of a frame); `laneOf(request)` is a request's lane. */
export function drawMiniMap(
  painter: CanvasPainter,
  blocks: Block[],
  map: Pick<BlockGrid, "cellWidth" | "body" | "x" | "y">,
  laneOf: (request: number) => number | null,
) {
  const { theme } = painter;
  for (const { id, kind, owners } of blocks) {
    const box: Rect = [map.x(id), map.y(id), map.cellWidth, map.body];
    if (kind === "unshared") painter.mark(...box, laneOf(owners[0]));
    else if (kind === "free") painter.frame(...box, theme.rule);
    else if (kind === "shared") painter.shared(...box);
    else painter.cached(...box);
  }
}
