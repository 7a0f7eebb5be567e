/**
 * Where each KV block lies on the map. Pure.
 *
 * Up to about a hundred blocks each has its number above it and room for its slots. Beyond that cells
 * shrink in two stages: first the number goes (each row names its first block), then the gaps.
 */

const STAGES = [
  { label: 12, body: 31, gapX: 8, gapY: 9, cell: 50, least: 30, columns: 8, rows: 9 },
  { label: 0, body: 18, gapX: 4, gapY: 4, cell: 24, least: 16, columns: 16, rows: 16 },
  { label: 0, body: 9, gapX: 2, gapY: 2, cell: 11, least: 8, columns: 32, rows: 28 },
  { label: 0, body: 4, gapX: 1, gapY: 1, cell: 5, least: 3, columns: 64, rows: Infinity },
];

const GUTTER = 30;

/** The grid of `count` blocks in `width` pixels, below `top`. */
export function blockGrid(count, width, top = 0) {
  for (const stage of STAGES) {
    const left = stage.label ? 0 : GUTTER;
    // A round number of columns makes a row's first number easy to count on from.
    let columns = stage.columns;
    while ((width - left + stage.gapX) / (2 * columns) > stage.cell + stage.gapX) columns *= 2;
    while (columns > 4 && (width - left + stage.gapX) / columns < stage.least + stage.gapX) columns /= 2;
    const rows = Math.ceil(count / columns);
    if (rows > stage.rows) continue;
    const pitchX = (width - left + stage.gapX) / columns;
    const pitchY = stage.label + stage.body + stage.gapY;
    return {
      ...stage,
      columns,
      rows,
      left,
      cellWidth: pitchX - stage.gapX,
      cellHeight: stage.label + stage.body,
      height: top + rows * pitchY - stage.gapY,
      x: (block) => left + (block % columns) * pitchX,
      y: (block) => top + Math.floor(block / columns) * pitchY,
      /** The block at a point, or -1. The gap right of and below a cell belongs to it. */
      at(x, y) {
        const column = Math.floor((x - left) / pitchX);
        const row = Math.floor((y - top) / pitchY);
        if (column < 0 || column >= columns || row < 0) return -1;
        const block = row * columns + column;
        return block < count ? block : -1;
      },
    };
  }
  throw new RangeError(`no grid for ${count} blocks`);
}
