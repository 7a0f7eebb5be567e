import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { KernelSync } from "../src/host/kernel_sync.js";

/** A widget's model as ipywidgets has it: it keeps what was set until it is saved, whoever set it since. */
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
    () => board,
    (isDone) => told.push(isDone),
  );
  const move = (step) => {
    board.step = step;
    sync.moved();
  };
  return { board, model, told, sync, move };
}

test("many moves are one message, of where the board stands when it is sent", (t) => {
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

test("what the kernel sets before a move was sent is not overwritten by it", (t) => {
  t.after(() => mock.timers.reset());
  const { board, model, move, sync } = scene();
  move(5);
  model.kernelSets({ step: 9 });
  board.step = 9; // the board goes there at once
  sync.moved();
  mock.timers.tick(1000);
  assert.deepEqual(model.sent, []);
  assert.equal(model.values.step, 9);
});

test("nothing is sent while the kernel has not taken the last message", (t) => {
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

test("a host that never says when the kernel is done is told all the same", (t) => {
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
