/** Which cells a run has to run, without a page. */

export interface CellState {
  source: string; // the code as it is now
  original: string; // the code of the lesson
  ran: string | null; // the code that ran last, null if it has to run again
}

/**
 * The cells to run, in order, so that `target` runs as if from the top: those before it that have not run or have
 * changed, all cells after the first of these, and the target itself.
 */
export function cellsToRun<Cell extends CellState>(cells: Cell[], target: Cell): Cell[] {
  const end = cells.indexOf(target);
  const first = cells.findIndex((cell, at) => at === end || cell.ran !== cell.source);
  return cells.slice(first, end + 1);
}

/** Notes that a cell has run: what comes after it has to run again. */
export function hasRun(cells: CellState[], cell: CellState) {
  cell.ran = cell.source;
  for (const later of cells.slice(cells.indexOf(cell) + 1)) later.ran = null;
}

/** Whether the reader has changed the lesson. */
export const isChanged = (cells: CellState[]) =>
  cells.some((cell) => cell.source !== cell.original);
