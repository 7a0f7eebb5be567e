// A cache that is known by hashes, and steps that are known by counts: what the model says of them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { describeStep } from "../src/board/descriptions.ts";
import { rangeWords } from "../src/board/range.ts";
import { Model } from "../src/model/index.ts";
import { HALF_DOT } from "../src/model/knowledge.ts";
import { sentence } from "../src/model/sentence.ts";
import { plain } from "../src/model/words.ts";

const FACTS = { prefix_tree: "recorded", evictions: "recorded", token_ids: "recorded" };
const start = {
  type: "run_started",
  schema: 2,
  settings: { block_size: 2, num_blocks: 0, prefix_cache: "hash" },
  classes: {},
  model: {},
  tokenizer: {},
  clock: "wall",
  source: { engine: "vLLM", recorder: "KV events", facts: FACTS },
};

/** A log with a step for each list of events. @param {...any[]} steps */
function modelOf(...steps) {
  const events = steps.flatMap((inner, index) => [
    { type: "step_started", step: index + 1 },
    ...inner,
    { type: "step_finished", tokens: [], step: index + 1, t: { start: index, end: index } },
  ]);
  return new Model(/** @type {any} */ ([start, ...events]));
}

/** @param {number} parent @param {number[]} nodes @param {number[]} blocks @param {string[]} hashes */
function reported(parent, nodes, blocks, hashes, medium = "GPU", tokens = [1, 2]) {
  const content = blocks.flatMap(() => tokens);
  return { type: "blocks_reported", parent, nodes, blocks, tokens: content, hashes, medium };
}

/** @param {number} node @param {number} block */
const evicted = (node, block) => ({
  type: "block_evicted",
  node,
  block,
  needed_by: -1,
  reason: "room",
});

/** @param {Model} model @param {number} step */
const tree = (model, step) =>
  model.frame(step).tree.map((node) => [node.title, node.places || node.absence]);
/** @param {Model} model @param {number} step */
const said = (model, step) => plain(sentence(model, step));

const CHAIN = reported(0, [1, 2, 3], [0, 1, 2], ["aaaa0", "bbbb0", "cccc0"]);

test("a chain has the names of its hashes", () => {
  const model = modelOf([CHAIN]);
  assert.deepEqual(tree(model, 1), [["aaaa bbbb cccc  6 tokens", "GPU"]]);
  assert.equal(said(model, 1), "Step 1: blocks aaaa, bbbb and cccc are stored in GPU.");
});

test("a block that left the middle of a chain still connects it", () => {
  const model = modelOf([CHAIN], [evicted(2, 1)]);
  assert.deepEqual(tree(model, 2), [
    ["aaaa  2 tokens", "GPU"],
    ["bbbb  evicted", "evicted"],
    ["cccc  2 tokens", "GPU"],
  ]);
  assert.equal(said(model, 2), "Step 2: no block is stored. 1 cached block is evicted: bbbb.");
  assert.equal(model.frame(2).counts.cached, 2);
});

test("what was stored before the log is named, and moves when its place is known", () => {
  const unknown = reported(0, [1], [], ["aaaa0"]);
  const below = reported(1, [2], [0], ["bbbb0"]);
  const model = modelOf([unknown, below], [reported(0, [3, 1], [1, 2], ["cccc0", "aaaa0"])]);
  assert.deepEqual(tree(model, 1), [
    ["aaaa  stored before this log", "stored before this log"],
    ["bbbb  2 tokens", "GPU"],
  ]);
  assert.deepEqual(tree(model, 2), [["cccc aaaa bbbb  6 tokens", "GPU"]]);
});

test("tiers are told apart", () => {
  const copy = reported(0, [2], [3], ["bbbb0"], "CPU", []);
  const model = modelOf([CHAIN], [copy], [evicted(2, 1)]);
  assert.deepEqual(tree(model, 2), [["aaaa bbbb cccc  6 tokens", "GPU 3, CPU 1"]]);
  assert.deepEqual(tree(model, 3), [["aaaa bbbb cccc  6 tokens", "GPU 2, CPU 1"]]);
  assert.equal(said(model, 2), "Step 2: block bbbb is stored in CPU.");
});

test("a removed block that the log did not know is not said to be stored", () => {
  const gone = reported(0, [4], [3], ["dddd0"], "GPU", []);
  const model = modelOf([CHAIN], [gone, evicted(4, 3)]);
  assert.equal(said(model, 2), "Step 2: no block is stored. 1 cached block is evicted: dddd.");
});

test("counts of a step are its tokens and its queue", () => {
  const counts = { prefills: 2, prefill_tokens: 30, decodes: 5, waiting: 7, waiting_tokens: 90 };
  const model = modelOf(
    [{ type: "step_reported", ...counts }],
    [{ type: "step_reported", ...counts, prefills: 0, prefill_tokens: 0, decodes: 0, waiting: 0 }],
  );
  assert.equal(said(model, 1), "Step 1: 5 decodes and 30 tokens of 2 prompts. 7 requests wait.");
  assert.equal(said(model, 2), "Step 2: nothing is computed.");
  const { tokens, prefill, decode, waiting } = model.measures;
  assert.deepEqual(
    [tokens, prefill, decode, waiting].map((values) => [...values]),
    [
      [35, 0],
      [30, 0],
      [5, 0],
      [7, 0],
    ],
  );
  assert.equal(model.frame(1).waitingCount, 7);
});

test("a cleared cache does not say that its blocks were unused", () => {
  const clear = { ...evicted(1, 0), reason: "cleared" };
  const model = modelOf([reported(0, [1], [0], ["aaaa"])], [clear]);
  assert.match(said(model, 2), /The cache is cleared: 1 block is removed\./);
});

test("a window of a log without requests does not say that no request runs", () => {
  const { settings, source } = start;
  const names = "free queue running waiting requests nodes holds plan in_flight".split(" ");
  const lists = Object.fromEntries(names.map((name) => [name, []]));
  const state = { step: 7, tick: 0, settings, source, ...lists };
  const model = new Model(/** @type {any} */ ([{ type: "keyframe", seq: 30, state }]));
  const later = { type: "step_started", step: 8 };
  model.append(/** @type {any} */ ([later]));
  assert.equal(said(model, model.firstStep), "Step 7: the log begins here.");
});

test("what only counts tell is said without gaps, and an inferred time with its mark", () => {
  const facts = { scheduled_tokens: "recorded", queue: "recorded", step_times: "inferred" };
  const source = { engine: "SGLang", recorder: "metrics", facts };
  const counts = { prefills: 1, prefill_tokens: 9, decodes: 0, waiting: 3, waiting_tokens: 7 };
  const model = new Model(
    /** @type {any} */ ([
      { ...start, source },
      { type: "step_started", step: 1 },
      { type: "step_reported", ...counts },
      { type: "step_finished", tokens: [], step: 1, t: { start: 0, end: 5 } },
    ]),
  );
  const lines = describeStep(model, 1);
  assert.deepEqual(lines.slice(1), ["3 waiting", `took ${HALF_DOT}\u00a00.005 ms`]);
  assert.doesNotMatch(rangeWords(model, [1, 1]), / \./);
});

test("a chain of a block per token is drawn as fast as it is long", () => {
  const numbers = Array.from({ length: 30_000 }, (_, index) => index);
  const nodes = numbers.map((index) => index + 1);
  const hashes = numbers.map((index) => index.toString(16).padStart(8, "0"));
  const model = modelOf([reported(0, nodes, numbers, hashes)]);
  const [node, ...others] = model.frame(1).tree;
  assert.equal(others.length, 0);
  assert.equal(node.blocks.length, 30_000);
  assert.equal(node.tokens.length, 60_000);
  assert.equal(node.depth, 0);
});
