import assert from "node:assert/strict";
import { test } from "node:test";

import { arrivalAt, arrivals, drawRouter, routerPitch } from "../../src/cluster/router_lanes.ts";
import { timeScale } from "../../src/drawing/time_axis.ts";
import { recordingPencil } from "../recorder.js";
import { joined, modelOf, routed, started, twoReplicas } from "./events.js";

const axis = (from, to) => ({
  kind: "time",
  from,
  to,
  typical: 1000,
  smallest: 10,
  begin: (x) => x,
  end: (x) => x,
  stepAt: (x) => x,
});

function sceneOf(model, more = {}) {
  const { from, to } = model.extent;
  const whole = axis(from, to);
  const shown = model.replicas;
  const scale = timeScale({ from, to }, 100, 800, whole);
  return { model, shown, scale, pitch: routerPitch(shown.length), route: null, at: to, ...more };
}
const measure = (name) => 6 * name.length;

test("each decision is at its time, in the row of its replica", () => {
  const model = modelOf(twoReplicas());
  const scene = sceneOf(model);
  const items = arrivals(scene, measure);
  assert.deepEqual(
    items.map(({ route }) => route.request.name),
    ["Ann", "Zed", "Ben"],
  );
  for (const { route, x } of items) assert.equal(x, scene.scale.at(route.at));
  assert.equal(new Set(items.map(({ base }) => base)).size, 1);
});

test("a bar is as high as the share of the longest prompt; without a hit there is none", () => {
  const [ann, , ben] = arrivals(sceneOf(modelOf(twoReplicas())), measure);
  assert.equal(ann.barWidth, 0);
  assert.ok(ben.barWidth > 0);
  assert.equal(ben.delivered, 0);
  assert.equal(ben.predicted, (4 / 5) * (routerPitch(2) - 13));
});

test("close decisions become ticks without names, but the selected one stays whole", () => {
  const many = Array.from({ length: 400 }, (_, i) => routed(i + 1, "b", 1000 + 10 * i));
  const model = modelOf(started(), joined("b"), many);
  const route = model.routes[200];
  const items = arrivals(sceneOf(model, { route }), measure);
  const chosen = items.find((item) => item.route === route);
  assert.ok(chosen.isNamed && chosen.mark > 6);
  const others = items.filter((item) => item !== chosen && item !== items.at(-1));
  assert.ok(others.every(({ mark, isNamed }) => mark <= 3 && !isNamed));
});

test("the pointer finds the decision that is drawn there", () => {
  const scene = sceneOf(modelOf(twoReplicas()));
  const items = arrivals(scene, measure);
  for (const item of items)
    assert.equal(arrivalAt(items, item.x + 4, item.base - 4, scene.pitch)?.route, item.route);
  assert.equal(
    arrivalAt(items, items[0].x + 4, items[0].base - scene.pitch, scene.pitch),
    undefined,
  );
});

test("what is drawn: the outline of the predicted hit, no hatching where nothing was delivered", () => {
  const model = modelOf(twoReplicas());
  const scene = sceneOf(model, { untouched: true });
  const { painter, marks } = recordingPencil(820, 120);
  const items = arrivals(scene, measure);
  drawRouter(painter, scene, items);
  const ben = items[2];
  const frames = marks.filter(({ kind, x }) => kind === "frame" && Math.abs(x - ben.bar) < 1);
  assert.equal(frames.length, 1);
  assert.ok(Math.abs(frames[0].height - ben.predicted) < 1.5);
  assert.equal(marks.filter(({ paint }) => paint?.tile).length, 0);
  const names = marks.filter(({ kind }) => kind === "text").map(({ text }) => text);
  assert.ok(names.includes("Ben") && names.includes("replica b"));
});
