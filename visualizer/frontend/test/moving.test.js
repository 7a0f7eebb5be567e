import assert from "node:assert/strict";
import { test } from "node:test";
import { aggregate, rangeWords } from "../src/board/range.ts";
import { find } from "../src/board/search.ts";
import { labAddress, sourceOf } from "../src/board/sources.ts";
import { pythonFor, readAddress, writeAddress } from "../src/host/address.ts";
import { duration } from "../src/model/duration.ts";
import { assertNames } from "./facts.js";
import { storytellers } from "./recorder.js";

const model = storytellers();
const found = (query) => [...find(model, query, 30)].filter(Boolean);

test("the sums of a range are those of its measures, and the sums of all steps those of the run", () => {
  const whole = aggregate(model, model.firstStep, model.lastStep);
  const sum = (name) => [...model.measures[name]].reduce((total, value) => total + value, 0);
  for (const name of ["tokens", "prefill", "decode", "catchup", "preempted", "evicted", "found"])
    assert.equal(whole[name], sum(name), name);
  assert.equal(whole.tokens, whole.prefill + whole.decode + whole.catchup);
  assert.equal(whole.steps, 53);
  assert.equal(whole.finished, 12);
  const [left, right] = [aggregate(model, 1, 20), aggregate(model, 21, 53)];
  for (const name of ["tokens", "hits", "finished", "evicted"])
    assert.equal(left[name] + right[name], whole[name], name);
});

test("means cover the requests that finish in the range, with the log's times", () => {
  const span = model.request(3);
  const { step } = span.finished;
  const { end, start } = model.measures;
  const at = (one) => end.at(one - model.firstStep);
  const { ttft, itl, finished, wall } = aggregate(model, step, step);
  assert.equal(finished, 1);
  assert.equal(ttft, at(span.tokenSteps[0]) - span.arrivedAt);
  const gaps = span.tokenSteps.slice(1).map((one, i) => at(one) - at(span.tokenSteps[i]));
  assert.ok(Math.abs(itl - gaps.reduce((a, b) => a + b) / gaps.length) < 1e-6);
  assert.equal(wall, at(step) - start.at(step - model.firstStep));
  const text = rangeWords(model, [step, step]);
  assertNames(text, step, 7.5, 1, duration(ttft), duration(itl));
});

test("a range in which no request finishes has no means", () => {
  const { finished, wall } = aggregate(model, 2, 3);
  assert.equal(finished, 0);
  const text = rangeWords(model, [2, 3]);
  assertNames(text, 2, 3, finished);
  assert.deepEqual(text.match(/[\d.]+ ms/g), [duration(wall)], "the only time is the range's own");
});

test("an address gives the view it was written for", () => {
  const state = { step: 30, selected: 8, window: [10, 40], range: [12, 20], only: "tree" };
  const written = writeAddress(state);
  assert.equal(written, "#step=30&selected=8&from=10&to=40&range=12-20&panel=tree");
  assert.deepEqual(readAddress(written), state);
  assert.deepEqual(readAddress(writeAddress({ step: 2, selected: null })), {
    step: 2,
    selected: null,
  });
});

test("an invalid address gives an empty view", () => {
  for (const text of ["", "#", "#heading", "#step=x&from=9&to=2&range=5-1"])
    assert.deepEqual(readAddress(text), {}, text);
});

test("the call for a cell names what differs from the defaults", () => {
  assert.equal(pythonFor({ step: 3, selected: null }), "show(log, step=3)");
  assert.equal(
    pythonFor({ step: 3, selected: 2, window: [1, 9], range: [2, 4], only: "blocks" }),
    'show(log, step=3, select=2, window=(1, 9), range=(2, 4), panel="blocks")',
  );
});

test("every kind of event is found where it happened", () => {
  const steps = (query) => found(query).map(({ step }) => step);
  const all = (pick) => model.requests.flatMap(pick).sort((a, b) => a - b);
  assert.deepEqual(
    steps("preempted"),
    all(({ preemptions }) => preemptions.map((p) => p.step)),
  );
  const hits = ({ admissions }) => admissions.filter((a) => a.found).map((a) => a.step);
  assert.deepEqual(steps("hit"), all(hits));
  const { evicted, length } = model.measures;
  const evictions = [...Array(length).keys()].filter((i) => evicted.at(i)).map((i) => i + 1);
  assert.deepEqual(steps("evicted"), evictions);
});

test("text is found at the step that computed its first token, also across tokens", () => {
  for (const one of found("small boat that wanted")) {
    assert.equal(one.kind, "prompt");
    assert.match(one.text, /small boat that wanted/);
  }
  const [said] = found("the owl, the frog");
  assert.equal(said.kind, "output");
  const span = model.request(said.request);
  const index = span.tokenSteps.indexOf(said.step);
  assert.match(span.texts.slice(span.promptLength + index).join(""), /^ the owl, the frog/);
});

test("a number finds a step, a block and a request, if they exist", () => {
  const kinds = (query) => found(query).map(({ kind }) => kind);
  assert.deepEqual(kinds("9").slice(0, 3), ["step", "block", "request"]);
  assert.deepEqual(kinds("step 9"), ["step"]);
  assert.deepEqual(kinds("block 39"), ["block"]);
  assert.deepEqual(kinds("block 40"), []);
  assert.deepEqual(kinds("step 54"), []);
});

test("every decision and outcome of the run was made by a known function", () => {
  for (let step = model.firstStep; step <= model.lastStep; step += 1) {
    const frame = model.frame(step);
    for (const decision of [...frame.decisions, ...frame.outcomes]) {
      const source = sourceOf(frame, decision);
      assert.match(source?.file ?? "", /^engine\/.*\.py$/, `${decision.kind} in step ${step}`);
    }
  }
});

test("a file has an address in JupyterLab only if JupyterLab serves it", () => {
  const page = (config) => ({
    getElementById: () => (config ? { textContent: JSON.stringify(config) } : null),
  });
  const root = { path: "/home/ada/under glass", home: "/home/ada" };
  const address = (config) => labAddress("engine/core/engine.py", root, page(config));
  assert.equal(address(null), null);
  assert.equal(address({ serverRoot: "/srv", baseUrl: "/" }), null);
  assert.equal(address({ serverRoot: "/home/ad", baseUrl: "/" }), null);
  const inside = "lab/tree/under%20glass/engine/core/engine.py";
  assert.equal(address({ serverRoot: "/home/ada", baseUrl: "/user/ada/" }), `/user/ada/${inside}`);
  assert.equal(address({ serverRoot: "~", baseUrl: "/" }), `/${inside}`);
});

test("a question is answered by a list of requests, the worst first, each at the step that explains it", () => {
  const slo = { ttft: 100_000, itl: 1e9 };
  const asked = (query) => [...find(model, query, 30, slo)].filter(Boolean);
  const ids = (query) => asked(query).map(({ request }) => request);
  const time = (id) => model.waterfall.of(id);
  const sorted = (key) =>
    model.requests.map(({ id }) => id).sort((a, b) => key(time(b)) - key(time(a)));
  const slowest = sorted(({ total }) => total);
  assert.deepEqual(ids("Which requests were the slowest?"), slowest);
  assert.deepEqual(
    ids("p75"),
    slowest.slice(0, 4).reverse(),
    "9 of 12 took no longer than the first",
  );
  assert.equal(ids("p50 first tokens").at(-1), sorted(({ ttft }) => ttft ?? 0)[0]);
  const waited = ids("batch full");
  const full = ({ byCause }) => byCause.batch_full ?? 0;
  assert.deepEqual(
    waited,
    sorted(full).filter((id) => full(time(id))),
  );
  assert.deepEqual(ids("seats"), waited);
  for (const { request, step } of asked("batch full"))
    assert.ok(
      time(request).spans.some((span) => span.cause === "batch_full" && span.step === step),
    );
  assert.deepEqual(ids("preempted 1 times"), [8]);
  assert.deepEqual(asked("preempted twice"), []);
  assert.deepEqual(
    ids("outside the SLO").sort(),
    ids("ttft")
      .filter((id) => time(id).ttft > 1e5)
      .sort(),
  );
  const evicted = asked("missed the cache").find(({ request }) => request === 9);
  assertNames(evicted.text, 26, "17 to 24", "r7");
  const [why] = asked("why was r3 so slow?");
  assert.deepEqual([why.request, why.only], [3, "waterfall"]);
});
