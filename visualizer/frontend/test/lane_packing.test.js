import assert from "node:assert/strict";
import { test } from "node:test";

import { laneAt, occupant, occupantsBetween, packLanes } from "../src/drawing/lane_packing.js";
import { laneRows } from "../src/drawing/lane_rows.js";

const BATCH = 8;

/** A repeatable workload: arrivals close together, requests of different length, `BATCH` at a time, in order. */
function crowd(size, { seed = 1, pace = 3, length = 40 } = {}) {
  let state = seed;
  const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
  let from = 1;
  const places = new Array(BATCH).fill(0); // last step of the request in each seat
  return Array.from({ length: size }, () => {
    from += Math.floor(random() * pace);
    const place = places.indexOf(Math.min(...places));
    const runs = Math.max(from, places[place] + 1);
    const to = runs + 1 + Math.floor(random() * length);
    places[place] = to;
    return { from, to, runs };
  });
}

const live = (spans, step) =>
  spans.flatMap((span, index) => (span.from <= step && step <= span.to ? [index] : []));

/** The spans as known at a step: without later arrivals and later ends. */
const known = (spans, step) =>
  spans
    .filter(({ from }) => from <= step)
    .map(({ from, to, runs }) => ({
      from,
      to: Math.min(to, step),
      runs: runs <= step ? runs : null,
    }));

test("few requests have a lane each, in order", () => {
  const { lanes, stays } = packLanes(crowd(12));
  assert.deepEqual(
    stays.map(([{ lane }]) => lane),
    [...Array(12).keys()],
  );
  assert.equal(lanes.length, 12);
});

for (const [name, spans] of [
  ["a crowd that fits", crowd(500, { pace: 12 })],
  ["a crowd too large for the room", crowd(500)],
  ["all at once", crowd(200, { pace: 1 })],
]) {
  test(`${name}: each request is drawn once at every step of its span, and no two overlap`, () => {
    const { lanes, stays } = packLanes(spans, { batch: BATCH });
    stays.forEach((own, index) => {
      assert.equal(own[0].from, spans[index].from);
      assert.equal(own.at(-1).to, spans[index].to);
      for (let i = 1; i < own.length; i += 1) assert.equal(own[i].from, own[i - 1].to + 1);
    });
    for (const stay of lanes.flat()) assert.ok(stays[stay.index].includes(stay));
    for (const lane of lanes)
      for (let i = 1; i < lane.length; i += 1) assert.ok(lane[i - 1].to < lane[i].from);
  });

  test(`${name}: running requests are in the upper thirty lanes, and each moves at most once, when admitted`, () => {
    const packing = packLanes(spans, { batch: BATCH });
    for (let step = 1; step < 600; step += 1)
      for (const index of live(spans, step))
        if (spans[index].runs <= step) assert.ok(laneAt(packing, index, step) < 30);
    for (const [index, own] of packing.stays.entries()) {
      assert.ok(own.length <= 2);
      if (own.length === 2) assert.equal(own[1].from, spans[index].runs);
      if (own.length === 2) assert.ok(own[0].lane >= 30, "none of the room moves");
    }
  });

  test(`${name}: assigned lanes stay the same as the log grows`, () => {
    let before = null;
    for (let step = 1; step < 400; step += 7) {
      const packing = packLanes(known(spans, step), { batch: BATCH });
      before?.stays.forEach((own, index) =>
        own.forEach(({ lane, from }, i) => {
          assert.equal(packing.stays[index][i].lane, lane);
          assert.equal(packing.stays[index][i].from, from);
        }),
      );
      before = packing;
    }
  });
}

test("lanes of finished requests are used again, from the top", () => {
  const spans = [...Array(25).keys()].map(() => ({ from: 1, to: 10, runs: 1 }));
  for (let i = 0; i < 20; i += 1)
    spans.push({ from: 20 + i * 8, to: 22 + i * 8, runs: 20 + i * 8 });
  const { lanes, stays } = packLanes(spans, { batch: BATCH });
  assert.equal(lanes.length, 25);
  for (const [{ lane }] of stays.slice(25)) assert.equal(lane, 0);
});

test("a log without its beginning keeps its lanes", () => {
  for (const spans of [crowd(300), crowd(300, { pace: 12 })]) {
    const whole = packLanes(spans, { batch: BATCH });
    const first = 90;
    const later = spans.flatMap((span, index) => (span.to >= first ? [index] : []));
    const part = packLanes(
      later.map((index) => ({
        ...spans[index],
        from: Math.max(first, spans[index].from),
        runs: Math.max(first, spans[index].runs),
      })),
      { batch: BATCH, kept: later.map((index) => spans[index].from < 200 && whole.chosen[index]) },
    );
    for (let step = first; step < 200; step += 1)
      for (const index of live(spans, step))
        assert.equal(laneAt(part, later.indexOf(index), step), laneAt(whole, index, step));
    for (const lane of part.lanes)
      for (let i = 1; i < lane.length; i += 1) assert.ok(lane[i - 1].to < lane[i].from);
  }
});

test("thirty clients that send requests again and again never need more than thirty lanes", () => {
  const places = new Array(BATCH).fill(0);
  const free = new Array(30).fill(1); // the step at which each client sends again
  const spans = [];
  for (let i = 0; i < 900; i += 1) {
    const student = free.indexOf(Math.min(...free));
    const from = free[student];
    const place = places.indexOf(Math.min(...places));
    const runs = Math.max(from, places[place] + 1);
    const to = runs + 3 + ((i * 7) % 40);
    places[place] = to;
    free[student] = to + 1;
    spans.push({ from, to, runs });
  }
  assert.equal(packLanes(spans, { batch: BATCH }).lanes.length, 30);
});

test("lanes below the visible ones are used again as soon as their requests have moved up", () => {
  const thirty = (span) => [...Array(30)].map(() => span);
  const spans = [
    ...thirty({ from: 1, to: 4, runs: 1 }),
    ...thirty({ from: 2, to: 900, runs: 10 }),
    ...thirty({ from: 20, to: 40, runs: 30 }),
  ];
  assert.equal(packLanes(spans, { batch: BATCH }).lanes.length, 60);
});

test("a request moves up to the same lane in a window of the log", () => {
  const all = [...Array(40).keys()].map((i) => ({ from: 1, to: 20 + i, runs: 2 + i }));
  const { stays } = packLanes(all, { batch: BATCH, kept: [...Array(39), [33, 5]] });
  assert.deepEqual(
    stays[39].map(({ lane }) => lane),
    [33, 5],
  );
});

test("a lane shows the last request that began", () => {
  const lane = [
    { from: 1, to: 4 },
    { from: 9, to: 12 },
    { from: 20, to: 30 },
  ];
  const at = (step) => lane.indexOf(occupant(lane, step));
  assert.deepEqual([0, 1, 8, 9, 19, 20, 99].map(at), [0, 0, 0, 1, 1, 2, 2]);
  assert.deepEqual(occupantsBetween(lane, 5, 8), []);
  assert.deepEqual(occupantsBetween(lane, 4, 20), lane);
  assert.deepEqual(occupantsBetween(lane, 0, 0), []);
});

test("thirty lanes are visible at once; more scroll", () => {
  for (const narrow of [true, false])
    for (let count = 1; count <= 30; count += 1) {
      const { pitch, height } = laneRows(count, 30, { narrow, unit: 1 });
      assert.ok(count * pitch <= height);
      assert.ok(height <= 400 && pitch >= 13);
      assert.equal(height % pitch, 0); // none is cut
    }
  assert.deepEqual(laneRows(18, 30, { narrow: false, unit: 1 }), { pitch: 22, height: 396 });
  assert.deepEqual(laneRows(5000, 18, { narrow: false, unit: 1 }), { pitch: 22, height: 396 });
  assert.deepEqual(laneRows(90, 30, { narrow: false, unit: 1 }), { pitch: 13, height: 390 });
});
