/** Asynchronous scheduling on the board: step k is scheduled while step k-1 is computed. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { describeLane } from "../src/board/descriptions.ts";
import { drawLife } from "../src/drawing/lane.ts";
import { drawOverlap, overlapBoxes } from "../src/drawing/overlap.ts";
import { THEMES } from "../src/drawing/palette.ts";
import { stepAxis, timeScale, wholeView } from "../src/drawing/time_axis.ts";
import { wallAxis } from "../src/drawing/wall_axis.ts";
import { compose, Model, plain } from "../src/model/index.ts";
import { rowWasted } from "../src/model/request_spans.ts";
import { assertNames, names } from "./facts.js";
import * as make from "./model/events.js";
import { recordingPencil, storytellers } from "./recorder.js";

const { admitted, allocated, arrived, ended, scheduled, started, step } = make;

const finished = (number, gains, t, wasted = []) => ({
  ...make.finished(gains, t),
  step: number,
  wasted,
});
const times = (start, scheduled, launched, ready) =>
  start === undefined ? undefined : { start, scheduled, launched, ready, end: ready };

/** Two requests; r1 stops with the token of step 2, so its row in step 3 is in vain. `cpu`: us to schedule. */
function events({ cpu = 5, timed = true } = {}) {
  const t = (...all) => (timed ? times(...all) : undefined);
  return [
    started({ async_scheduling: true }),
    arrived(1, "abc"),
    arrived(2, "xyz"),
    step(1),
    admitted(1),
    allocated(1, 0, 1),
    admitted(2),
    allocated(2, 2, 3),
    scheduled([
      [1, 0, 3],
      [2, 0, 3],
    ]),
    step(2),
    scheduled([
      [1, 3, 1],
      [2, 3, 1],
    ]),
    finished(1, [[1, "d"], [2, "k"]], t(0, cpu, cpu, 25)), // biome-ignore format: one line a step
    step(3),
    allocated(1, 4),
    allocated(2, 5),
    scheduled([
      [1, 4, 1],
      [2, 4, 1],
    ]),
    finished(2, [[1, "!"], [2, "l"]], t(cpu, 2 * cpu, 25, 40)), // biome-ignore format: one line a step
    ended(1, "stop"),
    step(4),
    scheduled([[2, 5, 1]]),
    finished(3, [[2, "m"]], t(25, 25 + cpu, 40, 55), [1]),
    step(5),
    scheduled([], { skipped: [[2, "awaits_token"]] }),
    finished(4, [[2, "n"]], t(40, 40 + cpu, 55, 70)),
    ended(2),
    finished(5, [], timed ? { start: 55, scheduled: 55 + cpu, end: 70 } : undefined),
  ];
}
const model = new Model(events());

const scaleOf = (axis) => timeScale(wholeView(axis), 100, 800, axis);
const bySteps = (one) => scaleOf(stepAxis({ first: one.firstStep, last: one.lastStep }));
const byTime = (one) => scaleOf(wallAxis(one));
const at = (boxes, lane, number) => boxes.find((box) => box.lane === lane && box.step === number);

test("the times of the steps follow one another, and each step has its own pass", () => {
  const { start, end, scheduled: done, launched, ready } = model.measures;
  assert.deepEqual([...start], [0, 5, 25, 40, 55]);
  assert.deepEqual([...end], [5, 25, 40, 55, 70]);
  assert.deepEqual([...done], [5, 10, 30, 45, 60]);
  assert.deepEqual([...launched], [5, 25, 40, 55, NaN]);
  assert.deepEqual([...ready], [25, 40, 55, 70, NaN]);
  const computed = [1, 2, 3, 4, 5].map((number) => model.measures.computed(number));
  assert.deepEqual(computed, [[], [1], [2], [3], [4]]);
});

test("events that arrive one by one give the same times", () => {
  const live = new Model();
  for (const event of events()) live.append([event]);
  assert.deepEqual(make.measured(live), make.measured(model));
  const begun = new Model(events().slice(0, -6)); // step 4 is being scheduled
  assert.ok(Number.isNaN(begun.measures.start.at(3)));
  assert.equal(begun.frame(4).time, null);
});

test("a pass that ends before another step begins belongs to its own step, too", () => {
  const drained = new Model([
    ...events().slice(0, -9),
    finished(3, [[2, "m"]], times(25, 30, 40, 55), [1]),
  ]);
  assert.equal(drained.lastStep, 3);
  assert.deepEqual(drained.measures.computed(3), [2, 3]);
  const [second, third] = overlapBoxes(drained, bySteps(drained)).filter(
    ({ lane, column }) => lane === "pass" && column === 3,
  );
  assert.deepEqual([second.step, third.step], [2, 3]);
  assert.ok(second.x + second.width <= third.x);
});

test("on the axis of steps a column has the scheduled step above the computed one", () => {
  const boxes = overlapBoxes(model, bySteps(model));
  const column = (number) =>
    boxes.filter((box) => box.column === number).map(({ lane, step: one }) => [lane, one]);
  assert.deepEqual(column(1), [["scheduler", 1]]);
  for (const number of [2, 3, 4, 5]) {
    assert.deepEqual(column(number), [
      ["scheduler", number],
      ["pass", number - 1],
    ]);
    const own = boxes.filter((box) => box.column === number);
    assert.equal(own[0].x, own[1].x);
    assert.equal(own[0].width, own[1].width);
  }
});

test("on wall time scheduling and forward pass are as long as they took, and overlap", () => {
  const scale = byTime(model);
  const boxes = overlapBoxes(model, scale);
  const us = ({ x, width }) => [x, x + width].map((place) => Math.round(scale.placeAt(place)));
  assert.deepEqual(us(at(boxes, "scheduler", 3)), [25, 30]);
  assert.deepEqual(us(at(boxes, "pass", 2)), [25, 40]);
  assert.deepEqual(us(at(boxes, "pass", 3)), [40, 55]);
  assert.equal(at(boxes, "pass", 5), undefined, "it computed nothing");
});

test("scheduling that takes no time is a tick", () => {
  const instant = new Model(events({ cpu: 0 }));
  const { width } = at(overlapBoxes(instant, byTime(instant)), "scheduler", 3);
  assert.ok(width > 0 && width < 3);
});

test("a log without times shows the same two lanes on the axis of steps", () => {
  const untimed = new Model(events({ timed: false }));
  assert.equal(wallAxis(untimed), null);
  assert.deepEqual(overlapBoxes(untimed, bySteps(untimed)), overlapBoxes(model, bySteps(model)));
});

test("steps narrower than a pixel share boxes", () => {
  const axis = stepAxis({ first: 1, last: 5000 });
  const many = { firstStep: 1, lastStep: 5000, measures: { computed: (one) => [one - 1] } };
  const boxes = overlapBoxes(many, timeScale(wholeView(axis), 100, 800, axis));
  assert.ok(boxes.length <= 2 * 1400, `${boxes.length}`);
});

function drawn(number, scale = bySteps(model)) {
  const { painter, marks } = recordingPencil(840, 60);
  drawOverlap(painter, { model, scale, step: number, width: 840, still: "" });
  return marks;
}

test("at the cursor, the scheduled and the computed step stand out", () => {
  const marks = drawn(3);
  const { ink, ground } = THEMES.light;
  const inked = marks.filter(({ kind, paint }) => kind === "fill" && paint === ink);
  assert.equal(inked.length, 2);
  assert.equal(inked[0].x, inked[1].x);
  assert.ok(inked[0].y + inked[0].height < inked[1].y);
  const white = marks.filter(({ kind, paint }) => kind === "text" && paint === ground);
  assert.deepEqual(
    white.map(({ text }) => text),
    ["3", "2"],
  );
  assert.ok(drawn(1).some(({ text }) => text === "step 1"));
});

test("a row in vain is a segment of its own, with its reason", () => {
  const [first, second] = model.requests;
  assert.equal(rowWasted(first, 3), "ended");
  assert.equal(rowWasted(first, 2), undefined);
  assert.deepEqual(
    first.segments.filter(({ kind }) => kind === "decode").map(({ from, to }) => [from, to]),
    [
      [2, 2],
      [3, 3],
    ],
  );
  assert.ok(second.segments.every(({ wasted }) => !wasted));
});

test("a row of a step that was dropped is in vain for another reason, and its decode goes on", () => {
  const dropped = new Model([
    ...events().slice(0, -10),
    finished(2, [], times(5, 10, 25, 40)),
    finished(3, [], { start: 25, scheduled: 30, end: 40 }, [2]),
    step(4),
    scheduled([[2, 4, 1]]),
  ]);
  assert.deepEqual(dropped.measures.computed(3), [2]);
  const span = dropped.request(2);
  assert.equal(rowWasted(span, 3), "dropped");
  const kinds = span.segments.slice(-2).map(({ kind, from, wasted }) => [kind, from, wasted]);
  assert.deepEqual(kinds, [
    ["decode", 3, "dropped"],
    ["decode", 4, undefined],
  ]);
});

test("its lane shows it in the colour of lost time, in a form that no other row has", () => {
  const scale = bySteps(model);
  const { painter, marks } = recordingPencil();
  const packing = { lanes: [[{ index: 0, lane: 0, from: 1, to: 3 }]] };
  const scene = { scale, model, packing, laneHeight: 22, end: 800, narrow: false };
  drawLife(painter, scene, packing.lanes[0][0], 18);
  const { lost, hues } = THEMES.light;
  const [box] = marks.filter(({ kind, paint }) => kind === "frame" && paint === lost);
  assert.ok(box.x >= scale.x(3) && box.x + box.width <= scale.end(3));
  assert.ok(marks.some(({ paint, x }) => paint?.tile && Math.abs(x - box.x) < 1));
  const dashes = marks.filter(
    ({ kind, paint, x }) => kind === "fill" && paint === hues[0] && x >= scale.x(3),
  );
  assert.deepEqual(dashes, [], "no dash as for a token");
});

test("tooltip, decision and outcome say that it was in vain", () => {
  const place = { step: 3, inPlot: true, span: model.request(1) };
  const [, lane] = describeLane(model, 3, place, true);
  const row = model.frame(3).decisions.find(({ request }) => request === 1);
  const outcome = model.frame(4).outcomes.find(({ kind }) => kind === "wasted");
  for (const words of [lane, plain(row.spans), plain(outcome.spans)]) assertNames(words, "in vain");
  assert.equal(outcome.request, 1);
  assertNames(plain(outcome.spans), 3);
  assert.ok(!row.plain, "it is not just one more decode");
  const other = model.frame(3).decisions.find(({ request }) => request === 2);
  assert.ok(!names(plain(other.spans), "in vain"));
});

test("the tooltip of a step names what is computed meanwhile, and both durations", () => {
  const words = describeLane(model, 3, { step: 3, inPlot: true }, false).join("; ");
  assertNames(words, "step 2", "0.005 ms", "0.015 ms");
  const alone = describeLane(storytellers(), 3, { step: 3, inPlot: true }, false).join("; ");
  assert.ok(!names(alone, "meanwhile"));
});

test("a sentence names the step that its tokens are from", () => {
  const told = (number) => {
    const { kinds, spans } = compose(model.frame(number));
    return { kinds, text: plain(spans) };
  };
  assert.deepEqual(told(2).kinds, ["firstTokens"]);
  assertNames(told(2).text, "Step 1 ends");
  assert.deepEqual(told(3).kinds, ["finished"]);
  assertNames(told(3).text, "Step 2 ends", "r1");
  assert.deepEqual(told(4).kinds, ["wasted"]);
  assertNames(told(4).text, "Step 3 ends", "r1");
  const alone = storytellers();
  for (let number = 1; number <= alone.lastStep; number += 1)
    assert.ok(!names(plain(compose(alone.frame(number)).spans), "ends:"));
});

test("a token that is being computed has a placeholder until the next step fills it", () => {
  const tokens = (number, id) => model.frame(number).tokensOf(id);
  const pending = [1, 2, 3, 4, 5].map((number) => tokens(number, 2).pending);
  assert.deepEqual(pending, [[1], [2], [3], [4], []]);
  assert.deepEqual(
    [1, 2, 3].map((number) => tokens(number, 2).output.length),
    [0, 1, 2],
  );
  const ids = [2, 3, 4].map((number) => tokens(number, 1).vain);
  assert.deepEqual(ids, [null, 3, null]);
  assert.deepEqual(tokens(3, 1).pending, []);
  assert.deepEqual(storytellers().frame(8).tokensOf(1).pending, []);
});
