import assert from "node:assert/strict";
import { test } from "node:test";

import { occupant, occupantsBetween, packLanes } from "../src/lane_packing.js";

/** A repeatable crowd: arrivals close together, lives of different length. */
function crowd(size, seed = 1) {
  let state = seed;
  const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
  let from = 1;
  return Array.from({ length: size }, () => {
    from += Math.floor(random() * 3);
    return { from, to: from + 1 + Math.floor(random() * 40) };
  });
}

test("few requests have a lane each, in order", () => {
  const { lanes, laneOf } = packLanes(crowd(12));
  assert.deepEqual(laneOf, [...Array(12).keys()]);
  assert.equal(lanes.length, 12);
});

test("with many, no two in one lane overlap, and lanes are used again", () => {
  const spans = crowd(500);
  const { lanes, laneOf } = packLanes(spans);
  for (const [lane, members] of lanes.entries()) {
    for (const [i, index] of members.entries()) {
      assert.equal(laneOf[index], lane);
      if (i) assert.ok(spans[members[i - 1]].to + 3 < spans[index].from);
    }
  }
  assert.equal(lanes.flat().length, 500);
  let crowded = 0;
  for (let step = 1; step < 600; step += 1) {
    crowded = Math.max(
      crowded,
      spans.filter(({ from, to }) => from <= step && step <= to + 3).length,
    );
  }
  assert.equal(lanes.length, crowded, "no more lanes than requests at the fullest moment");
});

test("a lane is about the last request that began", () => {
  const spans = [
    { from: 1, to: 4 },
    { from: 9, to: 12 },
    { from: 20, to: 30 },
  ];
  const lane = [0, 1, 2];
  assert.deepEqual(
    [0, 1, 8, 9, 19, 20, 99].map((step) => occupant(lane, spans, step)),
    [0, 0, 0, 1, 1, 2, 2],
  );
  assert.deepEqual(occupantsBetween(lane, spans, 5, 8), []);
  assert.deepEqual(occupantsBetween(lane, spans, 4, 20), [0, 1, 2]);
  assert.deepEqual(occupantsBetween(lane, spans, 0, 0), []);
});
