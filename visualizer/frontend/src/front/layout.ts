/** Where things stand in the picture: columns are steps, lanes are people, and below them are the memory's blocks. */

export interface Layout {
  width: number;
  height: number;
  left: number; // where the first column begins
  columns: number; // steps that are in view
  column: number; // the width of one
  top: number; // above the lanes: the cursor's head
  pitch: number; // from lane to lane
  isNarrow: boolean;
  perRow: number; // blocks in a row
  memory: number; // the top of the memory
  block: { width: number; height: number; pitch: number; row: number };
}

const NARROW = 600; // px
const TOP = 24;

const BASE = 41; // px from a lane's top

/** The top of a lane; the top of the one after the last is the end of the lanes. */
export const topOf = ({ top, pitch }: Layout, lane: number) => top + pitch * lane;

/** The base line of a lane: bars stand on it, words below. */
export const baseOf = (layout: Layout, lane: number) => topOf(layout, lane) + BASE;

/** @param space the height that there is; null: as much as the picture needs */
export function layoutOf(width: number, blocks: number, space: number | null = null): Layout {
  const isNarrow = width < NARROW;
  const left = isNarrow ? 62 : 104;
  const columns = isNarrow ? 5 : Math.max(6, Math.floor((width - left) / 87) - 1);
  // On a phone half of the next column is in view, elsewhere all of it.
  const column = (width - left) / (columns + (isNarrow ? 0.4 : 1));
  const rows = Math.max(1, Math.ceil(blocks / (isNarrow ? 16 : 34)));
  const perRow = Math.max(1, Math.ceil(blocks / rows));
  const start = isNarrow ? 0 : left;
  const step = Math.min((width - start) / perRow, isNarrow ? 30 : 62);
  const height = isNarrow ? 26 : rows > 1 ? 26 : 40;
  const row = height + 22;
  const gap = isNarrow ? 36 : 20;
  const rest = TOP + gap + rows * row + 4;
  const pitch = space === null ? 66 : Math.max(60, Math.min(112, (space - rest) / 4));
  const memory = TOP + 4 * pitch + gap;
  return {
    width,
    left,
    columns,
    column,
    top: TOP,
    pitch,
    isNarrow,
    perRow,
    memory,
    height: memory + rows * row + 4,
    block: { width: step - (isNarrow ? 3 : 5), height, pitch: step, row },
  };
}

/** The first step in view if `now` is the last one. */
export const firstInView = ({ columns }: Layout, now: number) => Math.max(1, now - columns + 1);
