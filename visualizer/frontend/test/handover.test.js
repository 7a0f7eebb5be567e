import assert from "node:assert/strict";
import { test } from "node:test";

import { blockGrid } from "../src/drawing/block_grid.ts";
import { keyframesOf, laneBox, legsOf, movesOf } from "../src/drawing/handover.ts";
import { packLanes } from "../src/drawing/lane_packing.ts";
import { stepAxis, timeScale, wholeView } from "../src/drawing/time_axis.ts";
import { storytellers } from "./recorder.js";

const model = storytellers();
const PREEMPTION = 30;
const VICTIM = 8;

/** What the timeline draws, with its plot from 100 to 700 and its first lane 50 px below the board's corner. */
function lanesAt(step, more = {}) {
  const axis = stepAxis({ first: model.firstStep, last: model.lastStep });
  const scale = timeScale(wholeView(axis), 100, 700, axis);
  const packing = packLanes(model);
  const viewHeight = packing.lanes.length * 22;
  return { scale, packing, step, laneHeight: 22, scroll: 0, viewHeight, x: 10, y: 50, ...more };
}

const map = { grid: blockGrid(model.settings.num_blocks, 450, 6), x: 800, y: 90 };
const moves = movesOf(model.frame(PREEMPTION));
const rowOf = (lanes, id) => lanes.packing.stays[model.request(id).index].lane;

test("the victim's blocks move except those that others hold, and where each goes is its fate", () => {
  const frame = model.frame(PREEMPTION);
  const { blocks, fates } = frame.table(VICTIM);
  const left = blocks.filter((_, i) => fates[i].fate !== "others");
  assert.deepEqual(new Set(moves.map(({ block }) => block)), new Set(left));
  assert.ok(left.length < blocks.length, "some blocks have other holders");
  for (const { block, from, to } of moves) {
    assert.equal(from, VICTIM);
    const { owners } = frame.blocks[block];
    assert.deepEqual(owners, to === null ? [] : [to]);
  }
  assert.deepEqual(
    moves.map(({ to }) => to !== null),
    [true, false, false, false],
  );
});

test("a step without a preemption moves nothing", () => {
  assert.deepEqual(movesOf(model.frame(PREEMPTION - 1)), []);
  assert.deepEqual(movesOf(model.frame(PREEMPTION + 1)), []);
});

test("every block leaves the victim's lane for its place in the map; a taken one goes on, with its new owner's mark", () => {
  const lanes = lanesAt(PREEMPTION);
  const legs = legsOf(moves, model, lanes, map);
  assert.equal(legs.length, moves.length + 1);
  for (const { block, to } of moves) {
    const [leave, ...rest] = legs.filter((leg) => leg.block === block);
    assert.deepEqual([leave.request, leave.begin, leave.arrives], [VICTIM, 0, false]);
    assert.deepEqual(
      rest.map(({ request, end, arrives }) => [request, end, arrives]),
      to === null ? [] : [[to, 1, true]],
    );
    for (const { begin } of rest) assert.equal(begin, leave.end, "without a pause");
  }
  for (const { block, request, box, inLane } of legs) {
    const at = [box.x - map.x + box.width / 2, box.y - map.y + box.height / 2];
    assert.equal(map.grid.at(...at), block);
    const top = lanes.y + rowOf(lanes, request) * 22;
    assert.ok(inLane.y >= top && inLane.y + inLane.height <= top + 22);
  }
});

test("in a lane the blocks lie in the table's order, and the last is at the cursor", () => {
  const lanes = lanesAt(PREEMPTION);
  const boxes = [0, 1, 2].map((index) => laneBox(lanes, 3, index, 3));
  const cursor = lanes.x + lanes.scale.middle(PREEMPTION);
  assert.ok(Math.abs(boxes[2].x + boxes[2].width / 2 - cursor) < 0.01);
  assert.ok(boxes[0].x + boxes[0].width <= boxes[1].x && boxes[1].x < boxes[2].x);
});

test("a long table stays in the plot, and a lane out of sight is at the edge", () => {
  const lanes = lanesAt(model.firstStep);
  const first = laneBox(lanes, 0, 0, 400);
  assert.ok(first.x + first.width / 2 >= lanes.x + lanes.scale.left);
  const short = lanesAt(PREEMPTION, { viewHeight: 44, scroll: 110 });
  assert.equal(laneBox(short, 0, 0, 1).y, short.y);
  const below = laneBox(short, 11, 0, 1);
  assert.equal(below.y + below.height, short.y + 44);
});

test("a leg is visible only in its part of the motion, and begins and ends at its places", () => {
  const lanes = lanesAt(PREEMPTION);
  const legs = legsOf(moves, model, lanes, map).filter(({ block }) => block === moves[0].block);
  const [leave, arrive] = legs.map(keyframesOf);
  assert.deepEqual(
    [leave.at(0).opacity, leave.at(-1).opacity, arrive.at(0).opacity, arrive.at(-1).opacity],
    [1, 0, 0, 0],
  );
  const places = (frames) => frames.map(({ transform }) => transform === "none");
  assert.deepEqual(places(leave), [false, false, true, true, true]);
  assert.deepEqual(places(arrive), [true, true, false, false, false]);
});
