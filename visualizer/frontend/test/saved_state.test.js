import assert from "node:assert/strict";
import { test } from "node:test";

import { mergeStates } from "../src/host/saved_state.js";

const board = (view) => ({
  state: {
    _anywidget_id: "visualizer.board.Board",
    wants_picture: false,
    layout: `IPY_MODEL_layout-${view}`,
    view_model: `IPY_MODEL_${view}`,
  },
});
const view = (log) => ({ state: { log } });
const layout = { state: {} };

const FIRST = { one: board("v1"), v1: view("a"), "layout-v1": layout };
const SECOND = { two: board("v2"), v2: view("b"), "layout-v2": layout };

test("a visible board is saved with all models it refers to, a removed one is not", () => {
  const live = { ...FIRST, ...SECOND, slider: { state: { value: 3 } } };
  assert.deepEqual(
    mergeStates({ before: {}, saved: {}, live, shown: new Set(["one", "slider"]) }),
    FIRST,
  );
});

test("a board without a kernel stays as it was saved, until another board replaces it", () => {
  const shown = new Set(["one"]);
  assert.deepEqual(mergeStates({ before: {}, saved: FIRST, live: {}, shown }), FIRST);
  assert.deepEqual(mergeStates({ before: FIRST, saved: {}, live: {}, shown }), FIRST);
  assert.deepEqual(
    mergeStates({ before: {}, saved: FIRST, live: SECOND, shown: new Set(["two"]) }),
    SECOND,
  );
});

test("a view that two boards share stays while one of them is shown, in its newest state", () => {
  const beside = { beside: board("v1") };
  const moved = { ...FIRST, v1: { state: { log: "a", step: 7 } } };
  const saved = { ...FIRST, ...beside };
  assert.deepEqual(mergeStates({ before: {}, saved, live: moved, shown: new Set(["one"]) }), moved);
});

test("other saved widgets stay", () => {
  const saved = { slider: { state: { value: 3 } }, ...FIRST };
  const { slider } = saved;
  const before = { ...saved, button: { state: {} } };
  assert.deepEqual(mergeStates({ before, saved, live: {}, shown: new Set() }), { slider });
});

test("text in a log that looks like a reference is not one", () => {
  const talkative = { ...FIRST, v1: view("see IPY_MODEL_slider") };
  const live = { ...talkative, slider: { state: {} } };
  assert.deepEqual(
    mergeStates({ before: {}, saved: {}, live, shown: new Set(["one"]) }),
    talkative,
  );
});
