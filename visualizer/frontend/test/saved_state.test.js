import assert from "node:assert/strict";
import { test } from "node:test";

import { KernelSync } from "../src/host/kernel_sync.ts";
import { mergeStates, saveWith } from "../src/host/saved_state.ts";

const board = (view) => ({
  state: {
    _anywidget_id: "visualizer.widgets.board.Board",
    wants_picture: false,
    layout: `IPY_MODEL_layout-${view}`,
    view_model: `IPY_MODEL_${view}`,
  },
});
const view = (log) => ({ state: { log } });
const layout = { state: {} };

const FIRST = { one: board("v1"), v1: view("a"), "layout-v1": layout };
const SECOND = { two: board("v2"), v2: view("b"), "layout-v2": layout };

test("a board that is shown is saved with all it refers to, and one that is not shown is left out", () => {
  const live = { ...FIRST, ...SECOND };
  assert.deepEqual(mergeStates({ before: {}, saved: {}, live, shown: new Set(["one"]) }), FIRST);
});

const FORM = {
  form: { state: { children: ["IPY_MODEL_slider", "IPY_MODEL_output"] } },
  slider: { state: { value: 3 } },
  output: {
    state: {
      outputs: [{ data: { "application/vnd.jupyter.widget-view+json": { model_id: "inner" } } }],
    },
  },
  inner: { state: {} },
};

test("any widget that is shown is saved with all it refers to, and one that is not shown is left out", () => {
  const live = { ...FIRST, ...FORM, button: { state: {} } };
  const shown = new Set(["one", "form"]);
  assert.deepEqual(mergeStates({ before: {}, saved: {}, live, shown }), { ...FIRST, ...FORM });
  assert.deepEqual(mergeStates({ before: {}, saved: { ...FIRST, ...FORM }, live: {}, shown }), {
    ...FIRST,
    ...FORM,
  });
});

test("a widget that another one replaced is not saved any more", () => {
  const saved = { ...FIRST, slider: { state: { value: 3 } } };
  const live = { ...saved, again: { state: { value: 4 } } };
  const merged = mergeStates({ before: {}, saved, live, shown: new Set(["one", "again"]) });
  assert.deepEqual(merged, { ...FIRST, again: { state: { value: 4 } } });
});

test("with the reader's own setting on, widgets that are not shown stay", () => {
  const live = { ...FIRST, button: { state: {} } };
  assert.deepEqual(mergeStates({ before: {}, saved: live, live, shown: new Set(["one"]) }), live);
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

/** JupyterLab's notebook and widget manager, with the widgets of `FIRST`. */
function notebook(state) {
  const metadata = {};
  const cells = [{ outputs: [{ data: { [VIEW]: { model_id: "one" } } }] }];
  const live = { ...FIRST, v1: { state } };
  const scene = { metadata };
  const context = {
    saveState: { connect: (slot) => (scene.save = () => slot(null, "started")) },
    model: {
      getMetadata: (name) => metadata[name],
      setMetadata: (name, value) => (metadata[name] = value),
      toJSON: () => ({ cells }),
    },
  };
  const manager = { context, get_state_sync: () => ({ ...VERSION, state: structuredClone(live) }) };
  return { scene, manager };
}
const VIEW = "application/vnd.jupyter.widget-view+json";
const VERSION = { version_major: 2, version_minor: 0 };

test("what the reader changed just before saving is saved, although the kernel does not have it", () => {
  const state = { log: "a", step: 3, slo: [150, 40] };
  const { scene, manager } = notebook(state);
  saveWith(manager);
  const model = { get: (name) => state[name] };
  const board = { step: 3, slo: [150, 40] };
  const sync = new KernelSync(model, "v1", () => board);
  board.slo = [81, 40];
  scene.save();
  const saved = scene.metadata.widgets["application/vnd.jupyter.widget-state+json"].state;
  assert.deepEqual(saved.v1.state, { log: "a", step: 3, slo: [81, 40] });
  assert.deepEqual(saved.one, FIRST.one);
  assert.deepEqual(state.slo, [150, 40], "the model gets it when it is sent");
  assert.deepEqual(sync.unsent, { slo: [81, 40] });
  const widget = new KernelSync(model, "IPY_MODEL_layout-v1", () => ({ step: 9 }));
  scene.save();
  const again = scene.metadata.widgets["application/vnd.jupyter.widget-state+json"].state;
  assert.equal(again.one.state.step, 9, "a widget can be named by its layout");
  assert.deepEqual(again["layout-v1"], layout);
  assert.deepEqual(widget.unsent, { step: 9 });
});
