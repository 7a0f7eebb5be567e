import assert from "node:assert/strict";
import test from "node:test";
import { momentKind, momentSteps, momentsAround } from "../../src/model/moments.ts";
import { storytellers } from "../recorder.js";
import * as make from "./events.js";
import { modelOf } from "./scenes.js";

const { admitted, allocated, arrived, finished, scheduled, started, step } = make;

const kinds = (model) =>
  momentSteps(model).map((at) => momentKind(model.measures.happened.at(at - model.firstStep)));

test("each moment has the most telling thing of its step", () => {
  const model = storytellers();
  const of = (name) =>
    [...[...model.measures[name]].entries()].flatMap(([i, count]) => (count ? [i] : []));
  const preempted = of("preempted").map((i) => model.firstStep + i);
  const evicted = of("evicted").map((i) => model.firstStep + i);
  const steps = momentSteps(model);
  assert.deepEqual(
    steps.filter((_, index) => kinds(model)[index] === "preempted"),
    preempted,
  );
  for (const at of evicted) assert.ok(steps.includes(at));
  const forks = model.requests.flatMap(({ forked }) => (forked ? [forked.step] : []));
  for (const at of forks) assert.ok(steps.includes(at));
});

test("the moments around a step", () => {
  const model = storytellers();
  const steps = momentSteps(model);
  const [first, second] = steps;
  const at = (one) => {
    const { number, previous, next } = momentsAround(model, one);
    return [number, previous?.step ?? null, next?.step ?? null];
  };
  assert.deepEqual(at(first), [1, null, second]);
  assert.deepEqual(at(second), [2, first, steps[2]]);
  assert.deepEqual(at(steps.at(-1)), [steps.length, steps.at(-2), null]);
  if (second > first + 1) assert.deepEqual(at(first + 1), [null, first, second]);
});

test("an abort and an error are moments; finishes only if there is nothing else", () => {
  const run = [
    arrived(1, "a"),
    arrived(2, "b"),
    step(1),
    admitted(1),
    allocated(1, 0),
    admitted(2),
    allocated(2, 1),
    scheduled([
      [1, 0, 1],
      [2, 0, 1],
    ]),
    finished([
      [1, "x"],
      [2, "y"],
    ]),
  ];
  assert.deepEqual(kinds(modelOf(started(), run, make.ended(1))), ["finished"]);
  assert.deepEqual(kinds(modelOf(started(), run, make.ended(1), make.ended(2, "abort"))), [
    "aborted",
  ]);
  assert.deepEqual(kinds(modelOf(started(), run, make.ended(1, "error", "no"))), ["failed"]);
  assert.equal(momentsAround(modelOf(started(), run), 1).count, 0);
});
