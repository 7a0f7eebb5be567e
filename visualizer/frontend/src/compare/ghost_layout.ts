/** Where the parts of the picture of two runs are, in board pixels. Pure functions. */

export type GhostLayout = ReturnType<typeof ghostLayout>;

/** of a point */
export type Spot =
  | { fork: true }
  | { fork?: undefined; row: number; side: number; inPlot: boolean };

const HEAD = 26; // the fork's glyph and its words
const MEMORY = { wide: 42, narrow: 34 };
const ENDS = 20; // the words at the ends of both runs
export const AXIS = 22;
const ROW = { least: 27, most: 35 };
const ROWS_HEIGHT = 540; // of twenty rows, so that the page fits a laptop's screen
export const LANE = 22; // px of a row that belong to A
const OUTLINE = { decode: 5, prefill: 9 };

/**
 * The layout of `count` rows in `width` pixels. `names` and `words` are the widths of the longest name and of the
 * longest words at the right.
 */
export function ghostLayout({
  width,
  count,
  narrow,
  names,
  words,
}: {
  width: number;
  count: number;
  narrow: boolean;
  names: number;
  words: number;
}) {
  const memory = MEMORY[narrow ? "narrow" : "wide"];
  const pitch = Math.min(ROW.most, Math.max(ROW.least, Math.floor(ROWS_HEIGHT / count) || 0));
  const left = 17 + Math.min(Math.max(names, narrow ? 40 : 76), narrow ? 64 : 110) + 6;
  const right = Math.round(width - Math.min(Math.max(words + 12, narrow ? 70 : 126), width / 3));
  const top = HEAD + memory + ENDS;
  const bottom = top + count * pitch;
  const base = LANE - 6 + (pitch > ROW.least + 3 ? 1 : 0);
  return {
    width,
    left,
    right,
    pitch,
    head: HEAD,
    memory: { top: HEAD + 2, bottom: HEAD + memory },
    top,
    bottom,
    height: bottom + AXIS,
    /** The baselines of A's lane and of B's outline. */
    base: ((row) => top + row * pitch + base) as (row: number) => number,
    below: ((row) => top + row * pitch + base + 1 + OUTLINE.prefill) as (row: number) => number,
    /** What is at a point: a row and a run (0, 1), the fork, or nothing. */
    at(x: number, y: number, fork: number | null): Spot | null {
      if (fork != null && y < HEAD && Math.abs(x - fork) < 16) return { fork: true };
      const row = Math.floor((y - top) / pitch);
      if (row < 0 || row >= count) return null;
      const isBelow = y - top - row * pitch > base + 1 && (fork == null || x >= fork);
      return { row, side: isBelow ? 1 : 0, inPlot: x >= left && x <= right };
    },
  };
}
