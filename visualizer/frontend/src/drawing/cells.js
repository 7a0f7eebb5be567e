/**
 * Thousands of blocks have a few pixels each. As marks they would be drawn for longer than a frame lasts, most
 * of them in patterns; so their pixels are written, with edges on whole pixels.
 */

/** Draws every block of `grid` in `paintOf(block)` at `alphaOf(block)`, below whatever comes next. */
export function drawCells(painter, { frame, grid }, paintOf, alphaOf) {
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
    const column = block.id % grid.columns;
    const row = (block.id - column) / grid.columns;
    const tile = painter.pixels(paintOf(block), alphaOf(block));
    if (tiles[block.id] === tile) continue;
    tiles[block.id] = tile;
    const { side } = tile;
    const right = Math.min(across[column + 1] - gap, width);
    const bottom = Math.min(down[row + 1] - gap, height);
    for (let y = down[row]; y < bottom; y += 1) {
      const from = (y % side) * side;
      const to = y * width;
      for (let x = across[column]; x < right; x += 1)
        pixels[to + x] = tile.pixels[from + (x % side)];
    }
  }
  context.putImageData(image, 0, 0);
}

/** The pixels as they were written last, and with which tile each block was: most blocks stay as they are. */
function writtenOn(painter, grid) {
  const { context, canvas } = painter;
  const { width, height } = canvas;
  const known = painter.cells;
  if (known?.grid === grid && known.image.width === width && known.image.height === height)
    return known;
  const image = context.createImageData(width, height);
  painter.cells = { grid, image, pixels: new Uint32Array(image.data.buffer), tiles: [] };
  return painter.cells;
}

/** Where each of `count` begins, `pitch` apart, and where the next after the last would, in whole pixels. */
const edges = (count, begin, pitch) =>
  Array.from({ length: count + 1 }, (_, i) => Math.round(begin + i * pitch));
