/** Which cells a run has to run, without a page. */

/**
 * @typedef {object} CellState
 * @property {string} source        the code as it is now
 * @property {string} original      the code of the lesson
 * @property {string | null} ran    the code that ran last, null if it has to run again
 */

/**
 * The cells to run, in order, so that `target` runs as if from the top: those before it that have not run or have
 * changed, all cells after the first of these, and the target itself.
 *
 * @template {CellState} Cell
 * @param {Cell[]} cells @param {Cell} target @returns {Cell[]}
 */
export function cellsToRun(cells, target) {
  const end = cells.indexOf(target);
  const first = cells.findIndex((cell, at) => at === end || cell.ran !== cell.source);
  return cells.slice(first, end + 1);
}

/** Notes that a cell has run: what comes after it has to run again. @param {CellState[]} cells @param {CellState} cell */
export function hasRun(cells, cell) {
  cell.ran = cell.source;
  for (const later of cells.slice(cells.indexOf(cell) + 1)) later.ran = null;
}

/** Whether the reader has changed the lesson. @param {CellState[]} cells */
export const isChanged = (cells) => cells.some((cell) => cell.source !== cell.original);
