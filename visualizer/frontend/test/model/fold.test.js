import assert from "node:assert/strict";
import test from "node:test";
import { LogError, State } from "../../src/model/index.ts";
import { treeOf } from "../../src/model/tree.ts";
import { names } from "../facts.js";
import { core } from "./core.js";
import * as make from "./events.js";
import { one } from "./scenes.js";

const { admitted, allocated, arrived, finished, scheduled, started, step } = make;

function fold(...events) {
  const state = new State();
  for (const event of events.flat(Infinity)) state.apply(event);
  return state;
}

/** r1 has "abcde" computed in blocks 0, 1, 2, of which 0 and 1 are node 1; its next token is "f". */
const oneRunning = [started(), ...one()];
const request = (state, id) => core(state).requests.find((one) => one.id === id);
const nodeOf = (id, parent, tokens, blocks, last, lock_ref) => {
  return { id, parent, tokens, blocks, copies: [], last, lock_ref, extra_key: [] };
};
const node = (state, id) => core(state).nodes.find((one) => one.id === id);

test("run_started: all blocks are free, block 0 is allocated first", () => {
  const values = core(fold(started()));
  assert.deepEqual(values.free, [5, 4, 3, 2, 1, 0]);
  assert.deepEqual(values.refs, [0, 0, 0, 0, 0, 0]);
  assert.deepEqual(values.nodes, [
    { id: 0, parent: -1, tokens: [], blocks: [], copies: [], last: 0, lock_ref: 0, extra_key: [] },
  ]);
  assert.equal(values.seq, 0);
});

test("request_arrived: to the end of the queue, with n seats", () => {
  const state = fold(started(), arrived(1, "ab", { n: 3 }), arrived(4, "c"));
  assert.deepEqual(core(state).waiting, [1, 4]);
  assert.equal(request(state, 1).num_seqs, 3);
});

test("admitted, allocated, scheduled, finished: a prompt is computed", () => {
  const state = fold(oneRunning.slice(0, 6));
  assert.deepEqual(core(state).plan, [[1, 0, 5, []]]);
  assert.deepEqual(core(state).waiting, []);
  state.apply(oneRunning[6]);
  assert.deepEqual(core(state).plan, []);
  assert.equal(request(state, 1).num_computed_tokens, 5);
  assert.equal(request(state, 1).tokens.length, 6);
  assert.deepEqual(core(state).free, [5, 4, 3]);
});

test("blocks_allocated: a custom pool may allocate any free block", () => {
  const state = fold(oneRunning, allocated(1, 4));
  assert.deepEqual(core(state).free, [5, 3]);
  assert.deepEqual(request(state, 1).block_table, [0, 1, 2, 4]);
});

test("radix_inserted: the tree has a reference, the request a lock", () => {
  const state = fold(oneRunning);
  assert.deepEqual(core(state).refs, [2, 2, 1, 0, 0, 0]);
  const tokens = [..."abcd"].map((letter) => letter.codePointAt(0));
  const kept = nodeOf(1, 0, tokens, [0, 1], 1, 1);
  assert.deepEqual(node(state, 1), kept);
  assert.equal(core(state).tick, 1);
  assert.deepEqual(state.counts, { unshared: 3, shared: 0, cached: 0, free: 3 });
});

test("an admission that hits shares blocks and locks their path", () => {
  const state = fold(oneRunning, arrived(2, "abcdx"), step(2), admitted(2, 1, [0, 1]));
  assert.deepEqual(core(state).refs, [3, 3, 1, 0, 0, 0]);
  assert.equal(request(state, 2).num_computed_tokens, 4);
  assert.equal(node(state, 1).lock_ref, 2);
  assert.deepEqual(state.counts, { unshared: 1, shared: 2, cached: 0, free: 3 });
});

test("radix_split: the upper part gets the new id, and the access counts for the lower one", () => {
  const state = fold(oneRunning, make.split(1, 1, 2));
  assert.deepEqual(node(state, 2), {
    ...node(state, 2),
    parent: 0,
    blocks: [0],
    last: 1,
    lock_ref: 1,
    extra_key: [],
  });
  assert.deepEqual(node(state, 1), {
    ...node(state, 1),
    parent: 2,
    blocks: [1],
    last: 2,
    lock_ref: 1,
    extra_key: [],
  });
  assert.equal(String.fromCharCode(...node(state, 1).tokens), "cd");
});

test("radix_extended: the edge grows with the request's own tokens", () => {
  const grown = [step(2), scheduled([[1, 5, 1]]), finished([[1, "g"]]), make.extended(1, 1, 2)];
  const state = fold(oneRunning, grown);
  assert.equal(String.fromCharCode(...node(state, 1).tokens), "abcdef");
  assert.equal(node(state, 1).last, 2);
  assert.equal(node(state, 1).lock_ref, 1);
});

test("radix_joined: the request's own blocks become free, last first", () => {
  const twin = [arrived(2, "abcde"), step(2), admitted(2), allocated(2, 3, 4, 5)];
  const state = fold(oneRunning, twin, scheduled([[2, 0, 5]]), finished([[2, "f"]]));
  state.apply(make.joined(2, 1, 0, 1));
  assert.deepEqual(request(state, 2).block_table, [0, 1, 5]);
  assert.deepEqual(core(state).free, [4, 3]);
  assert.equal(node(state, 1).lock_ref, 2);
});

test("forked: the sample shares everything with its parent and has its own row", () => {
  const start = [started(), arrived(1, "abc", { n: 2 }), step(1), admitted(1), allocated(1, 0, 1)];
  const state = fold(start, scheduled([[1, 0, 3]]), make.forked(2, 1, 1));
  assert.deepEqual(core(state).plan, [
    [1, 0, 3, []],
    [2, 0, 3, []],
  ]);
  assert.deepEqual(core(state).running, [1, 2]);
  assert.deepEqual(core(state).refs.slice(0, 2), [2, 2]);
  assert.deepEqual([request(state, 1).num_seqs, request(state, 2).num_seqs], [1, 1]);
  state.apply(
    finished([
      [1, "x"],
      [2, "y"],
    ]),
  );
  assert.deepEqual(request(state, 1).tokens.at(-1), "x".codePointAt(0));
  assert.deepEqual(request(state, 2).tokens.at(-1), "y".codePointAt(0));
  assert.equal(request(state, 2).num_computed_tokens, 3);

  state.apply(step(2));
  state.apply(make.copied(1, 1, 1, 2));
  assert.deepEqual(request(state, 1).block_table, [0, 2]);
  assert.deepEqual(core(state).refs.slice(0, 3), [2, 1, 1]);
});

test("preempted: all blocks are released, and the request is first in the queue", () => {
  const state = fold(oneRunning, arrived(2, "x"), step(2), make.preempted(1, 2));
  assert.deepEqual(core(state).waiting, [1, 2]);
  assert.deepEqual(request(state, 1), {
    ...request(state, 1),
    num_computed_tokens: 0,
    block_table: [],
    last_node: 0,
    preemptions: 1,
  });
  assert.deepEqual(core(state).free, [5, 4, 3, 2]);
  assert.deepEqual(state.counts, { unshared: 0, shared: 0, cached: 2, free: 4 });
  assert.equal(node(state, 1).lock_ref, 0);
  assert.equal(node(state, 1).last, 1);
});

test("radix_evicted: the leaf's blocks are free, its last block on top last", () => {
  const state = fold(oneRunning, make.ended(1), make.evicted(1, 2));
  assert.deepEqual(core(state).free, [5, 4, 3, 2, 1, 0]);
  assert.equal(node(state, 1), undefined);
});

test("drafts: computed counts the accepted ones, the rest is trimmed", () => {
  const drafts = [step(2), allocated(1, 3), scheduled([[1, 5, 3, [7, 8]]])];
  const state = fold(oneRunning, drafts, finished([[1, "gh", 1]]));
  assert.equal(request(state, 1).num_computed_tokens, 7);
  assert.equal(request(state, 1).tokens.length, 8);
  state.apply(make.trimmed(1, 3));
  assert.deepEqual(request(state, 1).block_table, [0, 1, 2]);
  assert.deepEqual(core(state).free, [5, 4, 3]);
});

test("a failed forward pass ends its rows before step_finished", () => {
  const rows = [step(2), scheduled([[1, 5, 1]]), make.ended(1, "error", "boom"), finished()];
  const values = core(fold(oneRunning, rows));
  assert.deepEqual([values.requests, values.running, values.plan], [[], [], []]);
});

/** With the hash cache: r1 has "abcde" in blocks 0, 1, 2, and 0 and 1 can be found. */
const oneHashed = [
  started({ prefix_cache: "hash" }),
  arrived(1, "abcde"),
  step(1),
  admitted(1),
  allocated(1, 0, 1, 2),
  make.stored(1, 0, [1, 2], [0, 1]),
  scheduled([[1, 0, 5]]),
  finished([[1, "f"]]),
];

test("blocks_stored: a node for each block, and no lock counts", () => {
  const state = fold(oneHashed);
  assert.deepEqual(core(state).refs, [2, 2, 1, 0, 0, 0]);
  const tokens = [..."cd"].map((letter) => letter.codePointAt(0));
  const second = nodeOf(2, 1, tokens, [1], 0, 0);
  assert.deepEqual(node(state, 2), second);
  assert.equal(request(state, 1).last_node, 2);
  assert.equal(core(state).tick, 0);
});

test("prefix_adopted: unlocked nodes, the latest access, and where they come from", () => {
  const state = fold([started(), make.adopted(0, [1], [0, 1], "abcd")]);
  assert.deepEqual(core(state).refs, [1, 1, 0, 0, 0, 0]);
  assert.equal(core(state).tick, 2);
  const tokens = [..."abcd"].map((letter) => letter.codePointAt(0));
  const adopted = nodeOf(1, 0, tokens, [0, 1], 1, 0);
  assert.deepEqual(node(state, 1), adopted);
  assert.deepEqual(state.adoptedPrefix(1), { adopted: 4, source: "replica 0" });
  assert.deepEqual(state.counts, { unshared: 0, shared: 0, cached: 2, free: 4 });
  const hashed = fold([
    started({ prefix_cache: "hash" }),
    make.adopted(0, [1], [0], "ab"),
    make.adopted(1, [2, 3], [1, 2], "cdef"),
  ]);
  assert.deepEqual(core(hashed).queue, [2, 1, 0]);
  assert.deepEqual(hashed.adoptedPrefix(3), { adopted: 6, source: "replica 0" });
});

test("the tail of a released table is allocated and evicted first", () => {
  const state = fold(oneHashed, make.ended(1));
  assert.deepEqual(core(state).free, [5, 4, 3, 2]);
  assert.deepEqual(core(state).queue, [1, 0]);
  assert.equal(state.evictable, 2);
  state.apply(make.blockEvicted(2, 1, -1, "cleared"));
  assert.deepEqual(core(state).free, [1, 5, 4, 3, 2]);
  assert.equal(node(state, 2), undefined);
  assert.deepEqual(state.counts, { unshared: 0, shared: 0, cached: 1, free: 5 });
});

test("a duplicate is a copy, and takes the place of the block that is evicted", () => {
  const twin = [arrived(2, "abx"), step(2), admitted(2), allocated(2, 3, 4)];
  const state = fold(oneHashed, twin, make.stored(2, 0, [1], [3]), make.ended(1));
  assert.deepEqual([node(state, 1).blocks, node(state, 1).copies], [[0], [3]]);
  state.apply(make.blockEvicted(2, 1, 2));
  state.apply(make.blockEvicted(1, 0, 2));
  assert.deepEqual([node(state, 1).blocks, node(state, 1).copies], [[3], []]);
});

test("a found block leaves the queue", () => {
  const state = fold(oneHashed, make.ended(1), arrived(2, "abx"), step(2), admitted(2, 1, [0]));
  assert.deepEqual(core(state).queue, [1]);
  assert.deepEqual(state.counts, { unshared: 1, shared: 0, cached: 1, free: 4 });
});

test("a withdrawn block stays in its table and cannot be found", () => {
  const state = fold(oneHashed.slice(0, -2), make.withdrawn(1, 2, 1));
  assert.deepEqual(request(state, 1).block_table, [0, 1, 2]);
  assert.equal(request(state, 1).last_node, 1);
  assert.equal(node(state, 2), undefined);
  state.apply(make.preempted(1, 1, 5));
  assert.deepEqual(core(state).free, [5, 4, 3, 1, 2]);
});

test("a chain without a path that ends inside is one node of the drawn tree", () => {
  const drawn = (...events) =>
    treeOf(fold(oneHashed, ...events)).map(({ id, parent, blocks, text, lock, depth }) => [
      id,
      parent,
      blocks,
      text,
      lock,
      depth,
    ]);
  assert.deepEqual(drawn(), [[2, 0, [0, 1], "abcd", 1, 0]]);
  const other = [arrived(2, "abx"), step(2), admitted(2, 1, [0])];
  assert.deepEqual(drawn(other), [
    [1, 0, [0], "ab", 2, 0],
    [2, 1, [1], "cd", 1, 1],
  ]);
  assert.deepEqual(drawn(make.ended(1)), [[2, 0, [0, 1], "abcd", 0, 0]]);
});

test("a waiting request can end", () => {
  const state = fold(started(), arrived(1, "a"), make.ended(1, "abort"));
  assert.deepEqual(core(state).waiting, []);
  assert.equal(state.waitingCount, 0);
});

test("a copy is independent", () => {
  const state = fold(oneRunning);
  const before = JSON.stringify(core(state));
  const copy = state.copy();
  for (const event of [make.ended(1), make.evicted(1, -1, "cleared")]) copy.apply(event);
  assert.equal(JSON.stringify(core(state)), before);
  state.apply(step(2));
  state.apply(scheduled([[1, 5, 1]]));
  state.apply(finished([[1, "g"]]));
  assert.equal(core(state).requests[0].tokens.length, 7);
  assert.deepEqual(core(copy).requests, []);
});

test("an impossible event is an error with its reason and place", () => {
  const refuses = (events, ...facts) =>
    assert.throws(
      () => fold(events),
      (error) => error instanceof LogError && facts.every((fact) => names(error.message, fact)),
    );
  refuses([oneRunning, allocated(1, 1)], 8, 1);
  refuses([started(), admitted(7)], 1, 7);
  refuses([oneRunning, make.evicted(9, 1)], 9);
  refuses([oneRunning, make.ended(1), make.ended(1)], 1);
});
