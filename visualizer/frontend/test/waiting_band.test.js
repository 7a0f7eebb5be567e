import assert from "node:assert/strict";
import { test } from "node:test";

import { causeColour } from "../src/drawing/causes.ts";
import { THEMES } from "../src/drawing/palette.ts";
import { queueRows } from "../src/drawing/queue.ts";
import { seatAt, seatsOf, seatsShown } from "../src/drawing/seats.ts";
import { stepAxis, timeScale, wholeView } from "../src/drawing/time_axis.ts";
import { bandHeight, drawBand, waitingParts } from "../src/drawing/waiting_band.ts";
import * as make from "./model/events.js";
import { modelOf } from "./model/scenes.js";
import { recordingPencil, storytellers } from "./recorder.js";

const model = storytellers();

test("the parts of a step add up to its queue; preempted requests are at the bottom", () => {
  for (let step = model.firstStep; step <= model.lastStep; step += 1) {
    const frame = model.frame(step);
    const parts = waitingParts(model, step);
    const sum = parts.reduce((all, { count }) => all + count, 0);
    const waits = frame.waiting.map((id) => ({ id, ...frame.waitOf(id) }));
    if (waits.every(({ reason }) => reason)) assert.equal(sum, waits.length);
    const isLost = ({ id }) => frame.state.request(id).preemptions > 0;
    const lost = waits.filter(isLost).length;
    assert.equal(parts.find(({ cause }) => cause === "preempted")?.count ?? 0, lost);
    const behind = waits.filter((one) => !isLost(one) && one.head !== one.id);
    assert.equal(parts.find(({ isBehind }) => isBehind)?.count ?? 0, behind.length, `step ${step}`);
  }
});

test("the band has a cell per waiting request and step, and never grows", () => {
  const draw = (many) => {
    const ids = Array.from({ length: many }, (_, i) => i + 2);
    const events = [
      make.started(),
      make.arrived(1, "a"),
      ...ids.map((id) => make.arrived(id, "b")),
    ];
    const full = { blocked: [2, "batch_full", 0, 1, 0] };
    const steps = [
      make.step(1),
      make.admitted(1),
      make.scheduled([[1, 0, 1]], full),
      make.finished(),
    ];
    const held = modelOf(events, steps);
    const { painter, marks } = recordingPencil();
    const axis = stepAxis({ first: 1, last: 1 });
    const scale = timeScale(wholeView(axis), 100, 700, axis);
    drawBand(painter, { model: held, scale, step: 1, selected: null, untouched: true, still: "" });
    return marks.filter(
      ({ kind, paint }) => kind === "fill" && paint === causeColour(THEMES.light, "batch_full"),
    );
  };
  const five = draw(5);
  assert.equal(five.length, 5);
  assert.deepEqual(
    five.map(({ alpha }) => alpha),
    [1, 0.5, 0.5, 0.5, 0.5],
  );
  const many = draw(300);
  assert.ok(Math.min(...many.map(({ y }) => y)) >= 0);
  assert.ok(Math.max(...many.map(({ y, height }) => y + height)) <= bandHeight());
});

test("an open queue shows what fits, and always the selected request", () => {
  const waiting = Array.from({ length: 20 }, (_, i) => i + 1);
  assert.deepEqual(queueRows({ waiting: [1, 2] }, null, 100).shown, [1, 2]);
  const { shown, rest, pitch } = queueRows({ waiting }, 17, 100);
  assert.ok((shown.length + 1) * pitch <= 104);
  assert.ok(shown.includes(17) && shown.includes(1));
  assert.equal(shown.length + rest, 20);
});

test("a request keeps its seat while it runs", () => {
  const { max_batch_size: all } = model.settings;
  const before = new Map();
  for (let step = model.firstStep; step <= model.lastStep; step += 1) {
    const frame = model.frame(step);
    const seats = seatsOf(frame, all);
    for (const id of frame.running) {
      assert.ok(seats.includes(id), `${id} at ${step}`);
      if (model.laneOf(id) < all) assert.equal(seats.indexOf(id), model.laneOf(id));
    }
    const taken = seats.filter((id) => id !== null).length;
    assert.equal(taken, frame.seats.taken, `the picture and its number agree at ${step}`);
    before.set(step, seats);
  }
});

test("of many seats the first are shown, and the rest is counted", () => {
  assert.equal(seatsShown(8, 492), 8);
  const shown = seatsShown(256, 492);
  assert.ok(shown > 10 && shown < 40);
  for (const all of [2, 8, 256]) assert.equal(seatAt(1, all, 492), 0);
  assert.equal(seatAt(491, 8, 492), 7);
  assert.equal(seatAt(491, 256, 492), -1, "the others are not one seat");
});
