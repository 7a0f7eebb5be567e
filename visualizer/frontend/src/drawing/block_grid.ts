/**
 * The position of each KV block on the map. Pure functions.
 *
 * With up to about seventy blocks, each has its number above it and room for its slots. More blocks become
 * plain cells, with enough columns that the map stays about as high as the timeline beside it; each row then
 * shows the number of its first block.
 */

import type { Model } from "../model/model.ts";

export interface BlockGrid {
  count: number; // blocks that have a cell
  rest: number; // px below the cells, for the blocks that were never used
  columns: number;
  rows: number;
  left: number; // px
  label: number; // height of a block's number above its body; 0: blocks have no numbers
  body: number; // height of a block
  gapX: number;
  gapY: number;
  cellWidth: number;
  cellHeight: number; // label and body
  height: number; // of all rows
  x: (block: number) => number;
  y: (block: number) => number;
  at: (x: number, y: number) => number; // the block at a point, or -1
}

/** what drawing needs */
export type CellGrid = Omit<BlockGrid, "at" | "height">;

type Form = Pick<BlockGrid, "label" | "body" | "gapX" | "gapY" | "columns" | "left">;

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
 */
export function usedGrid({ settings, measures }: Model, width: number, top: number = 0): BlockGrid {
  const { num_blocks: all } = settings;
  const used = Math.max(1, measures.reach.at(measures.reach.length - 1) || 1);
  const whole = blockGrid(all, width, top);
  if (used >= MOSTLY * all) return { ...whole, count: all, rest: 0 };
  const { columns } = blockGrid(used, width, top);
  const count = Math.min(all, Math.ceil(used / columns) * columns);
  const part = blockGrid(count, width, top);
  return { ...part, count, rest: REST, height: part.height + REST };
}

/** The grid of `count` blocks in `width` pixels, below `top`. */
export function blockGrid(count: number, width: number, top: number = 0): BlockGrid {
  return labelledGrid(count, width, top) ?? plainGrid(count, width, top);
}

function labelledGrid(count: number, width: number, top: number) {
  const { columns: usual, cell, least, gapX, rows } = LABELLED;
  // Doubled or halved, because a round number of columns makes it easy to find a block by its number.
  let columns = usual;
  while ((width + gapX) / (2 * columns) > cell + gapX) columns *= 2;
  while (columns > 4 && (width + gapX) / columns < least + gapX) columns /= 2;
  return Math.ceil(count / columns) <= rows
    ? grid(count, width, top, { ...LABELLED, columns, left: 0 })
    : null;
}

function plainGrid(count: number, width: number, top: number) {
  const room = width - GUTTER;
  const pitchOf = (columns: number) => Math.min(28, room / columns);
  const columns =
    COLUMNS.find((number) => Math.ceil(count / number) * pitchOf(number) <= TALLEST) ??
    (COLUMNS.at(-1) as number);
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

/** The grid of `count` cells from `left` to `width`, below `top`. */
export function grid(count: number, width: number, top: number, form: Form): BlockGrid {
  const { label, body, gapX, gapY, columns, left } = form;
  const pitchX = (width - left + gapX) / columns;
  const pitchY = label + body + gapY;
  const rows = Math.ceil(count / columns);
  return {
    ...form,
    count,
    rest: 0,
    rows,
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
