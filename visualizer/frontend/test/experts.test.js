/** Expert loads: the fold sums them, a frame has those of its step, and the map shows each of them. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";

import { cellAt, drawExperts, expertGrid } from "../src/drawing/expert_map.ts";
import { TrimmedModel } from "../src/live/trimmed_model.ts";
import { added, loadWords, unpacked } from "../src/model/expert_loads.ts";
import { LogError, Model, State } from "../src/model/index.ts";
import { keyframe } from "../src/model/keyframe.ts";
import { parseLog } from "./model/read.js";
import { recordingPencil } from "./recorder.js";

const file = new URL("../../scenarios/experts.jsonl.gz", import.meta.url);
const { events } = parseLog(gunzipSync(readFileSync(file)).toString());
const finished = events.filter(({ type }) => type === "step_finished");
const total = (layers) => layers.flat().reduce((sum, load) => sum + load, 0);

test("loads are unpacked", () => {
  assert.deepEqual(unpacked([[-2, 3, -1, 1], [], [5]]), [[0, 0, 3, 0, 1], [], [5]]);
  assert.deepEqual(unpacked([[0, 0, 3]]), [[0, 0, 3]]);
  assert.throws(() => unpacked([[-(10 ** 9)]]), RangeError);
});

test("a frame has the loads of its step and the sums up to it", () => {
  const model = new Model(events);
  let sums = [];
  for (const { step, expert_loads } of finished) {
    const { story, state } = model.frame(step);
    assert.equal(story.loads.step, step);
    assert.deepEqual(story.loads.layers, unpacked(expert_loads));
    sums = added(sums, story.loads.layers);
    assert.deepEqual(state.expertLoads, sums);
    assert.equal(total(story.loads.layers), 8 * 2 * model.measures.tokens.at(step - 1));
  }
  assert.deepEqual(model.expertLoads, sums);
});

test("a model that continues from a keyframe has the sums", () => {
  const old = new Model(events);
  const successor = new TrimmedModel(old, 30);
  while (!successor.advance(1));
  assert.ok(successor.model.firstStep > 5);
  assert.deepEqual(successor.model.expertLoads, old.expertLoads);
  const again = new State();
  again.apply(JSON.parse(JSON.stringify(keyframe(old.stateAt(9)))));
  assert.deepEqual(again.expertLoads, old.stateAt(9).expertLoads);
});

test("loads that do not fit are an error of that event", () => {
  const at = events.findLastIndex(({ type }) => type === "step_finished");
  for (const wrong of [[[1]], [[-(10 ** 9)], [], [], [], [], [], [], []], [["a"]], "no"]) {
    const damaged = events.with(at, { ...events[at], expert_loads: wrong });
    assert.throws(
      () => parseLog(damaged.map(JSON.stringify).join("\n")) && new Model(damaged),
      LogError,
    );
  }
});

test("the words name the busiest expert, of several the first", () => {
  assert.equal(
    loadWords([[0, 6, 2, 0], [], [3, 1, 6, 3]]),
    "busiest expert 1 of layer 0: 6 tokens, 3.0 times the mean; 2 of 8 idle",
  );
});

for (const [width, layers, experts] of [
  [1400, 8, 16],
  [700, 48, 128],
  [350, 48, 128],
  [350, 1, 4],
]) {
  test(`every cell of ${layers} x ${experts} is found where it is drawn, ${width} px wide`, () => {
    const loads = Array.from({ length: layers + 1 }, (_, layer) =>
      layer === 1 ? [] : Array.from({ length: experts }, (_, expert) => (layer * expert) % 5),
    );
    const grid = expertGrid(loads, width);
    const { painter, marks } = recordingPencil(width, grid.height);
    const maps = [
      { title: "This step", loads },
      { title: "So far", loads: null },
    ];
    drawExperts(painter, grid, maps, null);
    const cells = marks.filter(
      ({ kind, paint, height }) => kind === "fill" && paint === painter.theme.ink && height > 2,
    );
    assert.equal(cells.length, loads.flat().filter(Boolean).length, "an idle expert is not filled");
    const most = Math.max(...loads.flat());
    for (const { x, y, width: wide, height, alpha } of cells) {
      assert.ok(x >= 0 && x + wide <= width && y + height <= grid.height);
      const { layer, expert } = cellAt(grid, x + wide / 2, y + height / 2);
      const strength = 0.12 + (0.88 * loads[layer][expert]) / most;
      assert.ok(Math.abs(alpha - strength) < 1e-9);
    }
    assert.equal(cellAt(grid, grid.maps[0].x - 1, grid.maps[0].y + 1), null);
    assert.equal(cellAt(grid, grid.maps[0].x + 1, grid.maps[0].y - 1), null);
    const second = grid.maps[1];
    assert.deepEqual(cellAt(grid, second.x + 1, second.y + 1), { layer: 0, expert: 0 });
    assert.ok(second.x + experts * grid.cell < width);
  });
}
