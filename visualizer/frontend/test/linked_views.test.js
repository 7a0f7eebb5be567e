import assert from "node:assert/strict";
import { test } from "node:test";
import { View } from "../src/board/view.js";
import { change, figure } from "../src/compare/compare_tables.js";
import { LinkedViews, stepAtTime } from "../src/compare/linked_views.js";

// Runs animation frames, one after another, as long as one is requested.
const frames = [];
globalThis.requestAnimationFrame = (callback) => frames.push(callback);
function settle() {
  for (let i = 0; frames.length; i += 1) {
    assert.ok(i < 20, "the views send changes to each other without end");
    frames.splice(0).forEach((callback) => callback(0));
  }
}

/** A model with a number of steps of `took` us each. */
function model(steps, took) {
  const end = Float64Array.from({ length: steps }, (_, i) => (i + 1) * took);
  return { firstStep: 1, lastStep: steps, stepCount: steps, measures: { end } };
}

function pair(facts = {}) {
  const views = [new View(), new View()];
  views[0].model = model(10, 10);
  views[1].model = model(20, 20);
  for (const view of views) view.store.step = 1;
  const { signal } = new AbortController();
  const linked = new LinkedViews(views, { renumbered: [], unmatched: [[], []], ...facts }, signal);
  return { views, linked };
}

test("both views are at the same step, and the end of the shorter run does not move the other view back", () => {
  const { views } = pair();
  views[0].goTo(7);
  settle();
  assert.equal(views[1].store.step, 7);
  views[1].goTo(15);
  settle();
  assert.deepEqual(
    views.map(({ store }) => store.step),
    [10, 15],
  );
  views[1].goTo(16);
  views[1].goTo(4);
  settle();
  assert.equal(views[0].store.step, 4);
});

test("by time, each view is at the last step that had ended", () => {
  const { views, linked } = pair();
  linked.setAxis("time");
  views[0].goTo(7); // ends at 70
  settle();
  assert.equal(views[1].store.step, 3); // ends at 60
  views[1].goTo(4); // ends at 80
  settle();
  assert.equal(views[0].store.step, 8);
});

test("a request is selected by its id in the other run, or not at all", () => {
  const { views } = pair({
    renumbered: [
      [2, 3],
      [3, 2],
    ],
    unmatched: [[5], [6]],
  });
  const partners = [
    [0, 2, 3],
    [0, 5, null],
    [1, 6, null],
    [1, 1, 1],
  ];
  for (const [side, id, other] of partners) {
    views[side].store.set({ selected: id });
    settle();
    assert.equal(views[1 - side].store.selected, other);
  }
});

test("a time between steps, before the first, and steps without an end", () => {
  const some = model(5, 10);
  some.measures.end[4] = NaN;
  assert.deepEqual(
    [0, 9, 10, 39, 40, 1000].map((time) => stepAtTime(some, time, 99)),
    [1, 1, 1, 3, 4, 4],
  );
  assert.equal(stepAtTime(some, NaN, 99), 99);
});

test("figures have three digits, changes a sign", () => {
  assert.deepEqual([12.345, 0, 1234.5, null, 0.001234].map(figure), [
    "12.3",
    "0",
    "1,235",
    "–",
    "0.001",
  ]);
  assert.deepEqual([2, -0.5, 0, null].map(change), ["+2", "−0.5", "0", "–"]);
});
