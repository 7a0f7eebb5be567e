/**
 * All KV blocks after a step as small cells: for a glance at how full memory is, and with whose tokens.
 *
 * @typedef {Pick<ReturnType<typeof miniGrid>, "cellWidth" | "body" | "x" | "y">} MiniGrid
 */

/** @import { Block } from "../model/frame.js" */
/** @import { CanvasPainter, Rect } from "./canvas_painter.js" */

const COLUMNS = 16;
const MOST_ROWS = 8;
const GAP = 1.5;

/**
 * The cells of `count` blocks in `width` pixels. Two maps of one width and one `most` have cells of one size.
 *
 * @param {number} count @param {number} width @param {number} [most]
 */
export function miniGrid(count, width, most = count) {
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
    /** @type {(block: number) => number} */
    x: (block) => (block % columns) * pitch,
    /** @type {(block: number) => number} */
    y: (block) => Math.floor(block / columns) * (body + GAP),
  };
}

/**
 * Draws `blocks` (those of a frame); `laneOf(request)` is a request's lane.
 *
 * @param {CanvasPainter} painter @param {Block[]} blocks @param {MiniGrid} grid
 * @param {(request: number) => number | null} laneOf
 */
export function drawMiniMap(painter, blocks, grid, laneOf) {
  const { theme } = painter;
  for (const { id, kind, owners } of blocks) {
    /** @type {Rect} */
    const box = [grid.x(id), grid.y(id), grid.cellWidth, grid.body];
    if (kind === "unshared") painter.mark(...box, laneOf(owners[0]));
    else if (kind === "free") painter.frame(...box, theme.rule);
    else {
      painter.fill(...box, kind === "shared" ? theme.shared : painter.hatch(theme.hatch));
      painter.frame(...box, kind === "shared" ? theme.sharedBorder : theme.hatch);
    }
  }
}
