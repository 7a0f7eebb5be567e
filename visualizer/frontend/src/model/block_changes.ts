/** The blocks that changed hands in a step, each before and after it. */

import { heldBlocks, tablesOf } from "./fold.ts";
import type { Block, Frame } from "./frame.ts";
import { type Span, say } from "./words.ts";

export type Side = {
  kind: Block["kind"];
  owner: number | null;
  filled: number;
};

export interface BlockChange {
  block: number;
  before: Side;
  after: Side;
  copy: number | null; // the block that it was copied to
  spans: Span[];
}

/**
 * The changes, most telling first: copies, blocks with a new owner, evictions, what became of victims' other blocks.
 */
export function blockChanges(frame: Frame): BlockChange[] {
  const { model, markedBlocks, story } = frame;
  const { copies } = story;
  const changes: Map<number, BlockChange & { rank: number }> = new Map();
  const add = (rank: number, block: number, spans: Span[], copy: number | null = null) => {
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

function sideBefore({ before }: Frame, block: number): Side {
  const owners = before.running.filter((id) => heldBlocks(before.request(id)).includes(block));
  const [owner = null] = owners;
  if (owner === null) {
    const kind = before.inTree(block) ? "cached" : "free";
    return { kind, owner, filled: kind === "cached" ? before.blockSize : 0 };
  }
  const { num_computed_tokens: computed } = before.request(owner);
  const at = Math.max(...tablesOf(before.request(owner)).map((table) => table.indexOf(block)));
  const filled = Math.min(before.blockSize, computed - at * before.blockSize);
  return { kind: owners.length > 1 ? "shared" : "unshared", owner, filled };
}

export function sideAfter({ blocks }: Frame, block: number): Side {
  const { kind, owners, filled } = blocks[block];
  return { kind, owner: owners[0] ?? null, filled };
}
