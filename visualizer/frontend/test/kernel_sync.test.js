import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { KernelSync } from "../src/host/kernel_sync.ts";

/** A widget model as in ipywidgets: it keeps set values until they are saved, even if the kernel has set others since. */
function modelOf(values, { acknowledges = true } = {}) {
  const unsaved = {};
  const model = {
    values,
    sent: [],
    waiting: [],
    get: (name) => model.values[name],
    set(name, value) {
      model.values[name] = unsaved[name] = value;
    },
    save_changes(callbacks) {
      model.sent.push({ ...unsaved });
      for (const name of Object.keys(unsaved)) delete unsaved[name];
      const idle = { content: { execution_state: "idle" } };
      model.waiting.push(() => callbacks.iopub.status(idle));
    },
    kernelSets: (more) => Object.assign(model.values, more),
    kernelTakes: () => model.waiting.shift()(),
  };
  const { save_changes: save } = model;
  if (!acknowledges) model.save_changes = () => save();
  return model;
}

function scene(options) {
  mock.timers.enable({ apis: ["setTimeout"] });
  const board = { step: 1, selected: -1 };
  const model = modelOf({ ...board }, options);
  const told = [];
  const sync = new KernelSync(
    model,
    undefined,
    () => board,
    (isDone) => told.push(isDone),
  );
  const move = (step) => {
    board.step = step;
    sync.moved();
  };
  return { board, model, told, sync, move };
}

test("many changes are one message, with the state at the time of sending", (t) => {
  t.after(() => mock.timers.reset());
  const { model, move, told } = scene();
  for (let step = 2; step < 30; step += 1) move(step);
  assert.deepEqual(model.sent, []);
  mock.timers.tick(200);
  assert.deepEqual(model.sent, [{ step: 29 }]);
  assert.equal(told.at(-1), false);
  model.kernelTakes();
  assert.equal(told.at(-1), true);
});

test("a value that the kernel sets before a change is sent is not overwritten", (t) => {
  t.after(() => mock.timers.reset());
  const { board, model, move, sync } = scene();
  move(5);
  model.kernelSets({ step: 9 });
  board.step = 9; // the board shows it at once
  sync.moved();
  mock.timers.tick(1000);
  assert.deepEqual(model.sent, []);
  assert.equal(model.values.step, 9);
});

test("nothing is sent until the kernel has processed the last message", (t) => {
  t.after(() => mock.timers.reset());
  const { model, move } = scene();
  move(5);
  mock.timers.tick(200);
  move(6);
  mock.timers.tick(500);
  assert.deepEqual(model.sent, [{ step: 5 }]);
  model.kernelTakes();
  mock.timers.tick(200);
  assert.deepEqual(model.sent, [{ step: 5 }, { step: 6 }]);
});

test("changes are sent even if the host never reports when the kernel is done", (t) => {
  t.after(() => mock.timers.reset());
  const { model, move, told } = scene({ acknowledges: false });
  for (const step of [6, 7, 8]) {
    move(step);
    mock.timers.tick(200);
    mock.timers.tick(1);
    assert.deepEqual(model.sent.at(-1), { step });
    assert.equal(told.at(-1), true);
  }
});
