import assert from "node:assert/strict";
import { test } from "node:test";

import {
  axisTicks,
  clampView,
  panView,
  revealStep,
  stepAxis,
  timeScale,
  wholeView,
  zoomView,
} from "../src/drawing/time_axis.ts";

const LOG = stepAxis({ first: 1, last: 200 });

test("a step is found at its position on the scale", () => {
  const scale = timeScale({ from: 1, to: 11 }, 100, 200, LOG);
  assert.equal(scale.width, 10);
  assert.equal(scale.x(1), 100);
  assert.equal(scale.x(11), 200);
  for (let step = 1; step <= 10; step += 1) {
    assert.equal(scale.stepAt(scale.x(step) + 0.01), step);
    assert.equal(scale.stepAt(scale.x(step + 1) - 0.01), step);
  }
  assert.deepEqual([scale.first, scale.last], [1, 10]);
});

test("zooming keeps the anchor in place and never leaves the log", () => {
  const view = { from: 50, to: 90 };
  const anchor = 60;
  const zoomed = zoomView(view, 0.5, anchor, LOG);
  assert.equal(zoomed.to - zoomed.from, 20);
  const share = ({ from, to }) => (anchor - from) / (to - from);
  assert.ok(Math.abs(share(zoomed) - share(view)) < 1e-9);
  assert.deepEqual(zoomView(view, 1000, anchor, LOG), wholeView(LOG));
  const closest = zoomView(view, 1e-6, anchor, LOG);
  assert.ok(closest.to - closest.from >= 8);
});

test("panning stops at both ends", () => {
  assert.deepEqual(panView({ from: 10, to: 30 }, -100, LOG), { from: 1, to: 21 });
  assert.deepEqual(panView({ from: 10, to: 30 }, 1000, LOG), { from: 181, to: 201 });
});

test("a view wider than the log is the log", () => {
  assert.deepEqual(clampView({ from: -5, to: 999 }, stepAxis({ first: 1, last: 3 })), {
    from: 1,
    to: 4,
  });
});

test("revealing moves a view only if the step is not visible", () => {
  const view = { from: 10, to: 50 };
  assert.equal(revealStep(view, 30, LOG), view);
  for (const step of [1, 9, 50, 51, 130, 200]) {
    const moved = revealStep(view, step, LOG);
    assert.ok(
      moved.from <= step && step + 1 <= moved.to,
      `step ${step} in ${JSON.stringify(moved)}`,
    );
    assert.equal(moved.to - moved.from, 40);
  }
});

test("ticks are round and far enough apart at any zoom", () => {
  for (const width of [4, 10, 60, 400, 5000, 1e6]) {
    const scale = timeScale({ from: 1, to: 1 + width }, 0, 600, LOG);
    const ticks = axisTicks(scale, 50);
    assert.ok(ticks.length <= 13, `${ticks.length} ticks for ${width} steps`);
    for (let i = 1; i < ticks.length; i += 1) {
      assert.ok(scale.x(ticks[i]) - scale.x(ticks[i - 1]) >= 50 - 1e-9);
      assert.match(String(ticks[i] - ticks[i - 1]), /^[125]0*$/);
    }
  }
});
