/** The blocks that the victims of a step's preemptions released, and where each of them went. */

import type { Frame } from "./frame.ts";

export interface Move {
  block: number;
  from: number; // the victim
  index: number; // place of the block in the victim's table
  count: number; // blocks in that table
  to: number | null; // the request that has the block now; null if it is free or only cached
}

/** The moves of a frame, those with a new owner first. A block that others still hold goes nowhere. */
export function movesOf(frame: Frame): Move[] {
  const moves = frame.story.preemptions.flatMap(({ request, table, seq }) =>
    table.flatMap((block, index) => {
      const { fate, to } = frame.fate(block, seq);
      return fate === "others" ? [] : [{ block, from: request, index, count: table.length, to }];
    }),
  );
  return moves.sort((a, b) => Number(a.to === null) - Number(b.to === null));
}
