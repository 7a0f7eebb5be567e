/**
 * The position of each KV block on the map. Pure functions.
 *
 * With up to about seventy blocks, each has its number above it and room for its slots. More blocks become
 * plain cells, with enough columns that the map stays about as high as the timeline beside it; each row then
 * shows the number of its first block.
 *
 * @typedef {object} BlockGrid
 * @property {number} count    blocks that have a cell
 * @property {number} rest     px below the cells, for the blocks that were never used
 * @property {number} columns
 * @property {number} rows
 * @property {number} left     px
 * @property {number} label    height of a block's number above its body; 0: blocks have no numbers
 * @property {number} body     height of a block
 * @property {number} gapX
 * @property {number} gapY
 * @property {number} cellWidth
 * @property {number} cellHeight  label and body
 * @property {number} height   of all rows
 * @property {(block: number) => number} x
 * @property {(block: number) => number} y
 * @property {(x: number, y: number) => number} at  the block at a point, or -1
 *
 * @typedef {Omit<BlockGrid, "at" | "height">} CellGrid  what drawing needs
 */

/** @import { Model } from "../model/model.js" */

const LABELLED = {
  label: 12,
  body: 28,
  gapX: 8,
  gapY: 7,
  cell: 50,
  least: 25,
  columns: 8,
  rows: 9,
};
const COLUMNS = [16, 24, 32, 48, 64, 96, 128, 192, 256];
const TALLEST = 430;
const GUTTER = 30;

const REST = 28; // px below the cells, for the blocks that were never used
const MOSTLY = 0.7; // with this share of blocks in use, all have a cell

/**
 * The grid of a model's blocks: of those that its requests have used at any time, in whole rows. `rest` is the height
 * of the line below that counts the others.
 *
 * @param {Model} model @param {number} width @param {number} [top]
 * @returns {BlockGrid}
 */
export function usedGrid({ settings, measures }, width, top = 0) {
  const { num_blocks: all } = settings;
  const used = Math.max(1, measures.reach[measures.reach.length - 1] ?? 1);
  const whole = blockGrid(all, width, top);
  if (used >= MOSTLY * all) return { ...whole, count: all, rest: 0 };
  const { columns } = blockGrid(used, width, top);
  const count = Math.min(all, Math.ceil(used / columns) * columns);
  const part = blockGrid(count, width, top);
  return { ...part, count, rest: REST, height: part.height + REST };
}

/**
 * The grid of `count` blocks in `width` pixels, below `top`.
 *
 * @param {number} count @param {number} width @param {number} [top]
 * @returns {BlockGrid}
 */
export function blockGrid(count, width, top = 0) {
  return labelledGrid(count, width, top) ?? plainGrid(count, width, top);
}

/** @param {number} count @param {number} width @param {number} top */
function labelledGrid(count, width, top) {
  const { columns: usual, cell, least, gapX, rows } = LABELLED;
  // Doubled or halved, because a round number of columns makes it easy to find a block by its number.
  let columns = usual;
  while ((width + gapX) / (2 * columns) > cell + gapX) columns *= 2;
  while (columns > 4 && (width + gapX) / columns < least + gapX) columns /= 2;
  return Math.ceil(count / columns) <= rows
    ? grid(count, width, top, { ...LABELLED, columns, left: 0 })
    : null;
}

/** @param {number} count @param {number} width @param {number} top */
function plainGrid(count, width, top) {
  const room = width - GUTTER;
  /** @param {number} columns */
  const pitchOf = (columns) => Math.min(28, room / columns);
  const columns =
    COLUMNS.find((number) => Math.ceil(count / number) * pitchOf(number) <= TALLEST) ??
    /** @type {number} */ (COLUMNS.at(-1));
  const pitch = pitchOf(columns);
  const gap = pitch > 20 ? 4 : pitch > 9 ? 2 : pitch > 4 ? 1 : 0;
  return grid(count, width, top, {
    label: 0,
    body: pitch - gap,
    gapX: gap,
    gapY: gap,
    columns,
    left: GUTTER,
  });
}

/**
 * @param {number} count @param {number} width @param {number} top
 * @param {Pick<BlockGrid, "label" | "body" | "gapX" | "gapY" | "columns" | "left">} form
 * @returns {BlockGrid}
 */
function grid(count, width, top, { label, body, gapX, gapY, columns, left }) {
  const pitchX = (width - left + gapX) / columns;
  const pitchY = label + body + gapY;
  const rows = Math.ceil(count / columns);
  return {
    count,
    rest: 0,
    columns,
    rows,
    left,
    label,
    body,
    gapX,
    gapY,
    cellWidth: pitchX - gapX,
    cellHeight: label + body,
    height: top + rows * pitchY - gapY,
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
