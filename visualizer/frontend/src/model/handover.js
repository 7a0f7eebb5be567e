/**
 * The blocks that the victims of a step's preemptions released, and where each of them went.
 *
 * @typedef {object} Move
 * @property {number} block
 * @property {number} from      the victim
 * @property {number} index     place of the block in the victim's table
 * @property {number} count     blocks in that table
 * @property {number | null} to the request that has the block now; null if it is free or only cached
 */

/**
 * The moves of a frame, those with a new owner first. A block that others still hold goes nowhere.
 *
 * @param {import("./frame.js").Frame} frame
 * @returns {Move[]}
 */
export function movesOf(frame) {
  const moves = frame.story.preemptions.flatMap(({ request, table, seq }) =>
    table.flatMap((block, index) => {
      const { fate, to } = frame.fate(block, seq);
      return fate === "others" ? [] : [{ block, from: request, index, count: table.length, to }];
    }),
  );
  return moves.sort((a, b) => Number(a.to === null) - Number(b.to === null));
}
