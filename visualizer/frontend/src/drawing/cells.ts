/**
 * Draws thousands of blocks of a few pixels each. Drawing them as shapes, most of them with patterns, takes longer
 * than a frame. Their pixels are written directly instead, with edges on whole pixels.
 */

import type { Block, Frame } from "../model/frame.ts";
import type { CellGrid } from "./block_grid.ts";
import type { CanvasPainter, Tile } from "./canvas_painter.ts";

/** the pixels written last, and the tile of each block by its id */
export type Cells = { grid: CellGrid; image: ImageData; pixels: Uint32Array; tiles: Tile[] };

/**
 * Draws every block of `grid` with `tileOf(block)`: `{side, pixels, isCell}`, a square of pixels that repeats over the
 * map or, if `isCell`, begins with each cell.
 */
export function drawCells(
  painter: CanvasPainter,
  { frame, grid }: { frame: Frame; grid: CellGrid },
  tileOf: (block: Block) => Tile,
) {
  const { context, canvas, ratio } = painter;
  const { e: left, f: top } = context.getTransform();
  const { width, height } = canvas;
  const { image, pixels, tiles } = writtenOn(painter, grid);
  const gap = Math.round(grid.gapX * ratio);
  const across = edges(
    grid.columns,
    left + ratio * grid.x(0),
    ratio * (grid.cellWidth + grid.gapX),
  );
  const down = edges(grid.rows, top + ratio * grid.y(0), ratio * (grid.body + grid.gapY));
  for (const block of frame.blocks) {
    if (block.id >= grid.count) break;
    const column = block.id % grid.columns;
    const row = (block.id - column) / grid.columns;
    const tile = tileOf(block);
    if (tiles[block.id] === tile) continue;
    tiles[block.id] = tile;
    const { side, isCell } = tile;
    const [x0, y0] = isCell ? [across[column], down[row]] : [0, 0];
    const right = Math.min(across[column + 1] - gap, width);
    const bottom = Math.min(down[row + 1] - gap, height);
    for (let y = down[row]; y < bottom; y += 1) {
      const from = ((y - y0) % side) * side;
      const to = y * width;
      for (let x = across[column]; x < right; x += 1)
        pixels[to + x] = tile.pixels[from + ((x - x0) % side)];
    }
  }
  context.putImageData(image, 0, 0);
}

/** The pixels written last and the tile of each block: most blocks do not change between frames. */
function writtenOn(painter: CanvasPainter, grid: CellGrid): Cells {
  const { context, canvas } = painter;
  const { width, height } = canvas;
  const known = painter.cells;
  if (known?.grid === grid && known.image.width === width && known.image.height === height)
    return known;
  const image = context.createImageData(width, height);
  const cells = { grid, image, pixels: new Uint32Array(image.data.buffer), tiles: [] };
  painter.cells = cells;
  return cells;
}

/** The edges of `count` cells that are `pitch` apart, in whole pixels. */
const edges = (count: number, begin: number, pitch: number) =>
  Array.from({ length: count + 1 }, (_, i) => Math.round(begin + i * pitch));
