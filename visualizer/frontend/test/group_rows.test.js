import assert from "node:assert/strict";
import { test } from "node:test";

import { describeBlock } from "../src/board/descriptions.ts";
import { Model } from "../src/model/index.ts";
import { groupRows } from "../src/panels/group_rows.ts";
import { parseLog } from "./model/read.js";
import { recordingPencil, storytellers } from "./recorder.js";

const WINDOW = "the sliding window of 8 tokens (2 layers)";
const SETTINGS = { token_budget: 64, max_batch_size: 2, num_blocks: 8, block_size: 4 };

/** A prompt of three blocks, of which full attention had two. Then the window leaves the first block. */
const EVENTS = [
  {
    type: "run_started",
    ...{ schema: 2, classes: {}, model: {}, tokenizer: {}, clock: "" },
    settings: { ...SETTINGS, prefix_cache: "hash" },
    source: { engine: "vLLM 0.32.0", groups: ["full attention", WINDOW] },
  },
  {
    type: "request_arrived",
    ...{ request: 1, prompt: Array(12).fill(-1), texts: Array(12).fill(""), label: "Ada" },
    ...{ max_tokens: 4, n: 1, priority: 0, sampling: {} },
  },
  { type: "step_started", step: 1 },
  {
    ...{ type: "group_table_changed", request: 1, group: 1 },
    changes: [0, 1, 2].map((index) => [index, index + 3]),
  },
  { type: "admitted", request: 1, node: 0, blocks: [], resumed: false, key: [], hits: [8, 0] },
  { type: "blocks_allocated", request: 1, blocks: [0, 1, 2] },
  { type: "step_scheduled", rows: [[1, 0, 12]], skipped: [] },
  { type: "step_finished", tokens: [[1, [-1], [""]]], step: 1 },
  { type: "step_started", step: 2 },
  { type: "group_table_changed", request: 1, group: 1, changes: [[0, -1]] },
  { type: "step_scheduled", rows: [], skipped: [] },
  { type: "step_finished", tokens: [], step: 2 },
  { type: "step_started", step: 3 },
  { type: "request_finished", request: 1, reason: "abort" },
];
const model = new Model(parseLog(EVENTS.map((one) => `${JSON.stringify(one)}\n`).join("")).events);
const name = () => model.request(1).name;

test("a row per group has the blocks that each request holds there, and says which one broke a hit", () => {
  const [full, window] = groupRows(model.frame(1), 400, null);
  assert.equal(full.words.filter(Boolean).join(), "3 blocks");
  assert.equal(
    window.words.filter(Boolean).join(),
    `broke ${name()}'s hit: 0 of 8 tokens,3 blocks,2 layers`,
  );
  assert.match(window.describe(1, 1).join(), /tokens 0 to 3: block 3 .*had 0 tokens/);
  const [, later] = groupRows(model.frame(2), 400, null);
  assert.equal(later.words.filter(Boolean).join(), "2 blocks,2 layers");
  assert.match(later.describe(1, 1).join(), /no block/);
  for (const row of groupRows(model.frame(1), 10, 1)) row.draw(recordingPencil().painter, 0, 10);
  assert.deepEqual(groupRows(storytellers().frame(5), 400, null), []);
});

test("the map has the blocks of all groups, and a cut corner for those of the others", () => {
  const cutAt = (step) =>
    model
      .frame(step)
      .blocks.filter(({ isCut }) => isCut)
      .map(({ id }) => id);
  assert.deepEqual([1, 2, 3].map(cutAt), [[3, 4, 5], [4, 5], []]);
  assert.deepEqual(
    [1, 2, 3].map((step) => model.frame(step).counts.free),
    [2, 3, 8],
  );
  assert.ok(describeBlock(model, model.frame(1), 3).includes(`KV of ${WINDOW}`));
});
