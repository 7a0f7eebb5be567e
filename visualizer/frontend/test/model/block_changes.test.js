import assert from "node:assert/strict";
import test from "node:test";
import { blockChanges } from "../../src/model/block_changes.ts";
import { plain } from "../../src/model/index.ts";
import { assertNames } from "../facts.js";
import { storytellers } from "../recorder.js";
import * as make from "./events.js";
import * as scenes from "./scenes.js";

const { admitted, allocated, arrived, finished, scheduled, started, step } = make;
const { modelOf } = scenes;

const one = scenes.one();
const found = (model, at) =>
  blockChanges(model.frame(at)).map(({ block, before, after, copy }) => [
    block,
    before.kind,
    after.kind,
    copy,
  ]);

test("a preemption: the new owner's block comes first, then what the cache keeps", () => {
  const model = storytellers();
  const at = model.firstStep + [...model.measures.preempted].findIndex((count) => count);
  const frame = model.frame(at);
  const [{ request, by, table, seq }] = frame.story.preemptions;
  const changes = blockChanges(frame);
  const fates = table.map((block) => frame.fate(block, seq).fate);
  assert.equal(changes[0].before.owner, request);
  assert.equal(changes[0].after.owner, by);
  assertNames(plain(changes[0].spans), model.request(request).name, model.request(by).name);
  const cached = changes.filter(({ after }) => after.kind === "cached");
  assert.equal(cached.length, fates.filter((fate) => fate === "cached").length);
});

test("an eviction, a copy, and a step in which no block changes hands", () => {
  const gone = [make.ended(1), arrived(2, "z"), step(2), make.evicted(1, 2), admitted(2)];
  const rest = [allocated(2, 1), scheduled([[2, 0, 1]]), finished([[2, "y"]])];
  const evicts = modelOf(started(), one, gone, rest);
  assert.deepEqual(found(evicts, 1), []);
  assert.deepEqual(found(evicts, 2), [
    [1, "cached", "unshared", null],
    [0, "cached", "free", null],
  ]);
  const two = [step(2), make.forked(2, 1, 1), make.copied(2, 2, 2, 3), scheduled([]), finished()];
  assert.deepEqual(found(modelOf(started(), one, two), 2), [[2, "unshared", "unshared", 3]]);
});
