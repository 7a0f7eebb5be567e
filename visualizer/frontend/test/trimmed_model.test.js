/** A live log that is too long continues from a later step, and all later steps are as before. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { TrimmedModel } from "../src/live/trimmed_model.ts";
import { Model, State } from "../src/model/index.ts";
import { keyframe } from "../src/model/keyframe.ts";
import { core } from "./model/core.js";
import { parseLog } from "./model/read.js";

const { events } = parseLog(readFileSync(new URL("./storytellers.jsonl", import.meta.url), "utf8"));

test("a state's keyframe restores that state, including display fields", () => {
  const state = new State();
  for (const event of events) {
    state.apply(event);
    const again = new State();
    again.apply(JSON.parse(JSON.stringify(keyframe(state))));
    assert.deepEqual(core(again), core(state));
    assert.deepEqual(keyframe(again), keyframe(state));
  }
});

for (const kept of [1, 50, 200, events.length - 1]) {
  test(`the last ${kept} events as a log of their own show the same steps`, () => {
    const old = new Model(events);
    const successor = new TrimmedModel(old, kept);
    while (!successor.advance(1));
    const { model } = successor;
    assert.equal(model.lastStep, old.lastStep);
    assert.ok(old.lastStep - model.firstStep < kept + 1);
    for (let step = model.firstStep + 1; step <= model.lastStep; step += 1) {
      const [one, other] = [model.frame(step), old.frame(step)];
      assert.deepEqual(one.counts, other.counts);
      assert.deepEqual(one.running, other.running);
      assert.deepEqual(one.waiting, other.waiting);
    }
  });
}

test("a window knows the classes, and gives each request the lane it has on boards that joined late", () => {
  const old = new Model([keyframe(new Model(events).stateAt(12)), ...afterStep(12)]);
  assert.ok(old.classes.policy);
  const successor = new TrimmedModel(old, 100);
  while (!successor.advance(1));
  assert.deepEqual(successor.model.classes, old.classes);
  assert.ok(successor.model.requests.length);
  for (const { id } of successor.model.requests)
    assert.equal(successor.model.laneOf(id), old.laneOf(id));
});

/** The storytellers' events after a step. */
function afterStep(step) {
  const whole = new Model(events);
  return whole.eventsIn(whole.stepInfo(step).to + 1, events.length - 1);
}

test("events that arrive while it is built are in it", () => {
  const old = new Model(events.slice(0, 200));
  const successor = new TrimmedModel(old, 50);
  old.append(events.slice(200));
  while (!successor.advance(1));
  assert.equal(successor.model.lastStep, old.lastStep);
  assert.deepEqual(core(successor.model.stateAt(old.lastStep)), core(old.stateAt(old.lastStep)));
});
