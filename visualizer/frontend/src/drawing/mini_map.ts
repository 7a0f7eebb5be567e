/** All KV blocks after a step as small cells: for a glance at how full memory is, and with whose tokens. */

import type { Block } from "../model/frame.ts";
import type { CanvasPainter, Rect } from "./canvas_painter.ts";

export type MiniGrid = Pick<ReturnType<typeof miniGrid>, "cellWidth" | "body" | "x" | "y">;

const COLUMNS = 16;
const MOST_ROWS = 8;
const GAP = 1.5;

/** The cells of `count` blocks in `width` pixels. Two maps of one width and one `most` have cells of one size. */
export function miniGrid(count: number, width: number, most: number = count) {
  let columns = COLUMNS;
  while (most / columns > MOST_ROWS) columns *= 2;
  const pitch = (width + GAP) / columns;
  const side = Math.max(1, pitch - GAP);
  const body = Math.min(side, 9);
  const rows = Math.ceil(count / columns);
  return {
    cellWidth: side,
    body,
    height: rows * (body + GAP),
    x: ((block) => (block % columns) * pitch) as (block: number) => number,
    y: ((block) => Math.floor(block / columns) * (body + GAP)) as (block: number) => number,
  };
}

/** Draws `blocks` (those of a frame); `laneOf(request)` is a request's lane. */
export function drawMiniMap(
  painter: CanvasPainter,
  blocks: Block[],
  grid: MiniGrid,
  laneOf: (request: number) => number | null,
) {
  const { theme } = painter;
  for (const { id, kind, owners } of blocks) {
    const box: Rect = [grid.x(id), grid.y(id), grid.cellWidth, grid.body];
    if (kind === "unshared") painter.mark(...box, laneOf(owners[0]));
    else if (kind === "free") painter.frame(...box, theme.rule);
    else {
      painter.fill(...box, kind === "shared" ? theme.shared : painter.hatch(theme.hatch));
      painter.frame(...box, kind === "shared" ? theme.sharedBorder : theme.hatch);
    }
  }
}
