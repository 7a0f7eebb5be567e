import assert from "node:assert/strict";
import { test } from "node:test";

import { clampView, revealStep, timeScale, wholeView, zoomView } from "../src/drawing/time_axis.ts";
import { busyAxis, originOf, timeTicks, wallAxis } from "../src/drawing/wall_axis.ts";

/** A run with steps of given durations in us, and pauses before some of them. */
function run(took, { pauses = {}, began = 0, firstStep = 1 } = {}) {
  let now = began;
  const start = [];
  const end = [];
  took.forEach((us, i) => {
    now += pauses[i] ?? 0;
    start.push(now);
    now += us;
    end.push(now);
  });
  const measures = { start: Float64Array.from(start), end: Float64Array.from(end) };
  return { firstStep, lastStep: firstStep + took.length - 1, stepCount: took.length, measures };
}

test("the width of a step is its duration, and so is that of a pause", () => {
  const axis = wallAxis(run([10, 30, 20], { pauses: { 2: 40 } }));
  const scale = timeScale(wholeView(axis), 0, 1000, axis);
  const widths = [1, 2, 3].map((step) => scale.end(step) - scale.x(step));
  assert.deepEqual(widths, [100, 300, 200]);
  assert.equal(scale.x(3) - scale.end(2), 400);
  assert.deepEqual([scale.x(1), scale.end(3)], [0, 1000]);
});

test("a time belongs to its step, and in a pause to the step before it", () => {
  const axis = wallAxis(run([10, 30, 20], { pauses: { 2: 40 } }));
  assert.deepEqual(
    [-5, 0, 9, 10, 39, 60, 79, 80, 99, 1e9].map((place) => axis.stepAt(place)),
    [1, 1, 1, 2, 2, 2, 2, 3, 3, 3],
  );
});

test("busy time leaves out a pause, and says where and how long it was", () => {
  const model = run([10, 30, 20], { pauses: { 2: 40 }, began: 5000 });
  const axis = busyAxis(model);
  assert.deepEqual([axis.from, axis.to, axis.begin(3), axis.end(3)], [0, 60, 40, 60]);
  assert.deepEqual(axis.breaks, [{ place: 40, length: 40 }]);
  assert.deepEqual(
    [0, 9, 10, 39, 40, 59, 99].map((place) => axis.stepAt(place)),
    [1, 1, 2, 2, 3, 3, 3],
  );
  // A request that arrives in the pause arrives where it begins.
  assert.deepEqual([5005, 5050, 5079, 5085].map(axis.moment), [5, 40, 40, 45]);
  const overlapping = run([10, 30]);
  overlapping.measures.start[1] = 5;
  assert.deepEqual([busyAxis(overlapping).to, busyAxis(overlapping).breaks], [40, []]);
});

test("time counts from the first step of a run; a window keeps the engine's clock", () => {
  const whole = run([10, 10], { began: 5000 });
  assert.equal(originOf(whole), 5000);
  assert.equal(wallAxis(whole).begin(2), 10);
  assert.equal(wallAxis(whole).moment(5004), 4);
  const part = run([10, 10], { began: 5000, firstStep: 40 });
  assert.equal(wallAxis(part).begin(41), 5010);
});

test("a running or joined step has no width; a log without times has no time axis", () => {
  const running = run([10, 10, 10]);
  running.measures.start[2] = running.measures.end[2] = NaN;
  assert.equal(wallAxis(running).to, 20);
  assert.equal(wallAxis(running).begin(3), 20);
  const joined = run([10, 10, 10], { began: 100, firstStep: 7 });
  joined.measures.start[0] = joined.measures.end[0] = NaN;
  assert.deepEqual([wallAxis(joined).begin(7), wallAxis(joined).end(7)], [110, 110]);
  joined.measures.start.fill(NaN);
  joined.measures.end.fill(NaN);
  assert.equal(wallAxis(joined), null);
});

test("steps without width at the left edge are in view", () => {
  const axis = wallAxis(run([0, 0, 30, 20]));
  const first = (from) => timeScale({ from, to: 50 }, 0, 1000, axis).first;
  assert.deepEqual([first(0), first(1), first(30)], [1, 3, 4]);
});

test("views zoom at their anchor, stay inside the axis, and move to a step", () => {
  const axis = wallAxis(
    run(
      [...Array(400)].map((_, i) => 10 + (i % 7)),
      { pauses: { 200: 900 } },
    ),
  );
  const view = { from: 1000, to: 1400 };
  const zoomed = zoomView(view, 0.5, 1100, axis);
  assert.deepEqual(zoomed, { from: 1050, to: 1250 });
  assert.deepEqual(zoomView(view, 1e9, 1100, axis), wholeView(axis));
  assert.equal(clampView({ from: -50, to: 50 }, axis).from, 0);
  for (const step of [1, 90, 200, 201, 400]) {
    const moved = revealStep(view, step, axis);
    assert.ok(moved.from <= axis.begin(step) && axis.end(step) <= moved.to, `step ${step}`);
  }
});

test("ticks are round times with a unit, far enough apart at any zoom", () => {
  const said = (to) => {
    const axis = { ...wallAxis(run([to])), typical: 1 };
    return timeTicks(timeScale({ from: 0, to }, 0, 600, axis)).map(({ words }) => words);
  };
  assert.deepEqual(said(440_000).slice(0, 3), ["0 ms", "50 ms", "100 ms"]);
  assert.deepEqual(said(1_300_000).slice(0, 3), ["0.0 s", "0.2 s", "0.4 s"]);
  assert.deepEqual(said(4_400).slice(0, 3), ["0.0 ms", "0.5 ms", "1.0 ms"]);
  for (const to of [100, 1e4, 3e6, 7e8]) assert.ok(said(to).length <= 11);
});
