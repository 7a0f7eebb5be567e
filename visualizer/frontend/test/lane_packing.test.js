import assert from "node:assert/strict";
import { test } from "node:test";

import {
  laneAt,
  laneRows,
  occupant,
  occupantsBetween,
  packLanes,
  sitterAt,
} from "../src/drawing/lane_packing.ts";
import * as make from "./model/events.js";
import { modelOf } from "./model/scenes.js";
import { storytellers } from "./recorder.js";

test("a request is in its lane from its first admission until it ends", () => {
  const model = storytellers();
  const { lanes, stays } = packLanes(model);
  for (const span of model.requests) {
    const { lane, from, to } = stays[span.index];
    assert.equal(lane, model.laneOf(span.id));
    assert.equal(from, span.forked?.step ?? span.admissions[0].step);
    assert.equal(to, span.finished.step);
  }
  for (const lane of lanes)
    lane.forEach((stay, i) => assert.ok(i === 0 || stay.from > lane[i - 1].to));
});

test("there is a row for each seat, and more only while more requests are admitted than seats", () => {
  const model = storytellers();
  const { lanes } = packLanes(model);
  assert.equal(lanes.length, Math.max(model.laneCount, model.settings.max_batch_size));
  const empty = modelOf(make.started({ max_batch_size: 256 }), make.arrived(1, "a"), make.step(1));
  assert.equal(packLanes(empty).lanes.length, 12);
});

test("a request that was never admitted has no row", () => {
  const model = modelOf(make.started(), make.arrived(1, "a"), make.step(1));
  const packing = packLanes(model);
  assert.equal(laneAt(packing, 0), null);
  assert.ok(packing.lanes.every((lane) => lane.length === 0));
});

test("a pinned request's lane comes first, the others stay in order", () => {
  const model = storytellers();
  const plain = packLanes(model);
  const { index } = model.request(4);
  const pinned = packLanes(model, 4);
  assert.equal(laneAt(pinned, index), 0);
  const others = (packing) => packing.lanes.flatMap(([stay]) => stay?.index ?? []);
  const own = plain.stays[index].lane;
  assert.deepEqual(
    others(pinned).slice(1),
    others(plain).filter((_, lane) => lane !== own),
  );
});

test("a lane's stay at a step, in a range, and its empty seats", () => {
  const lane = [
    { from: 1, to: 4 },
    { from: 9, to: 12 },
  ];
  const at = (step) => lane.indexOf(occupant(lane, step));
  assert.deepEqual([at(0), at(4), at(8), at(9), at(99)], [0, 0, 0, 1, 1]);
  const sits = (step) => lane.indexOf(sitterAt(lane, step));
  assert.deepEqual([sits(0), sits(1), sits(4), sits(5), sits(9), sits(13)], [-1, 0, 0, -1, 1, -1]);
  assert.deepEqual(occupantsBetween(lane, 5, 8), []);
  assert.deepEqual(occupantsBetween(lane, 4, 20), lane);
  assert.deepEqual(occupantsBetween(lane, 0, 0), []);
});

test("lanes are narrower with more requests, and a class of thirty is visible at once", () => {
  const at = (count, room = 30) => laneRows(count, room, { narrow: false, unit: 1 });
  assert.deepEqual(at(8), { pitch: 22, height: 8 * 22 });
  assert.ok(at(20).pitch < 22 && at(30).pitch < at(20).pitch);
  assert.equal(at(30).height, 30 * at(30).pitch);
});
