/**
 * The blocks that changed hands in a step, each before and after it.
 *
 * @typedef {{kind: "free" | "owned" | "shared" | "cached", owner: number | null, filled: number}} Side
 * @typedef {object} BlockChange
 * @property {number} block
 * @property {Side} before
 * @property {Side} after
 * @property {number | null} copy  the block that it was copied to
 * @property {import("./words.js").Span[]} spans
 */

import { say } from "./words.js";

/**
 * The changes, most telling first: copies, blocks with a new owner, evictions, what became of victims' other blocks.
 *
 * @param {import("./frame.js").Frame} frame
 * @returns {BlockChange[]}
 */
export function blockChanges(frame) {
  const { model, markedBlocks, copies, story } = frame;
  /** @type {Map<number, BlockChange & {rank: number}>} */
  const changes = new Map();
  const add = (
    /** @type {number} */ rank,
    /** @type {number} */ block,
    /** @type {import("./words.js").Span[]} */ spans,
    /** @type {number | null} */ copy = null,
  ) => {
    const key = copy ?? block;
    if (changes.has(key)) return;
    changes.set(key, {
      rank,
      block,
      copy,
      spans,
      // Computed when they are asked for: only a few of many changes are drawn.
      get before() {
        return sideBefore(frame, block);
      },
      get after() {
        return sideAfter(frame, key);
      },
    });
  };
  for (const { source, block } of copies) add(0, source, say`copied to ${block}`, block);
  const isCopy = new Set(copies.map(({ block }) => block));
  for (const { id, mark, from, to } of markedBlocks) {
    if (isCopy.has(id)) continue;
    if (mark === "handed" && from !== to)
      add(1, id, say`from ${model.tag(from)} to ${model.tag(to)}`);
    if (mark === "evicted") add(2, id, say`evicted for ${model.tag(to)}`);
  }
  for (const { blocks: evicted } of story.evictions)
    for (const block of evicted) add(3, block, say`evicted`);
  for (const { table, seq } of story.preemptions) {
    for (const block of table) {
      const { fate } = frame.fate(block, seq);
      if (fate === "cached") add(4, block, say`the cache keeps it`);
      if (fate === "free") add(5, block, say`now free`);
    }
  }
  return [...changes.values()].sort((a, b) => a.rank - b.rank || a.block - b.block);
}

/** @param {import("./frame.js").Frame} frame @param {number} block @returns {Side} */
function sideBefore({ before }, block) {
  const owners = before.running.filter((id) => before.request(id).table.includes(block));
  const [owner = null] = owners;
  if (owner === null) {
    const kind = before.inTree(block) ? "cached" : "free";
    return { kind, owner, filled: kind === "cached" ? before.blockSize : 0 };
  }
  const { table, computed } = before.request(owner);
  const filled = Math.min(before.blockSize, computed - table.indexOf(block) * before.blockSize);
  return { kind: owners.length > 1 ? "shared" : "owned", owner, filled };
}

/** @param {import("./frame.js").Frame} frame @param {number} block @returns {Side} */
function sideAfter({ blocks }, block) {
  const { kind, owners, filled } = blocks[block];
  return { kind: kind === "unshared" ? "owned" : kind, owner: owners[0] ?? null, filled };
}
