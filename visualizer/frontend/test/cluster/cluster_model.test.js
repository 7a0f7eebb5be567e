import assert from "node:assert/strict";
import { test } from "node:test";

import { clusterFacts } from "../../src/cluster/cluster_facts.ts";
import { ClusterModel } from "../../src/cluster/cluster_model.ts";
import { clusterMoments, openingRoute } from "../../src/cluster/cluster_moments.ts";
import {
  clusterSentence,
  presenceWords,
  REASONS,
  seatsAt,
} from "../../src/cluster/cluster_words.ts";
import { gonePrefix } from "../../src/cluster/gone_prefix.ts";
import { VOCABULARY } from "../../src/cluster/vocabulary.ts";
import { Model, plain } from "../../src/model/index.ts";
import { keyframe } from "../../src/model/keyframe.ts";
import { assertNames } from "../facts.js";
import * as make from "../model/events.js";
import {
  bytesOf,
  ejected,
  failed,
  joined,
  left,
  lost,
  modelOf,
  moved,
  of,
  placed,
  returned,
  routed,
  run,
  started,
  step,
  twoReplicas,
  twoRuns,
} from "./events.js";

const two = () => modelOf(twoReplicas());

test("a cluster log splits into one model per replica, on one clock", () => {
  const model = two();
  const [a, b] = model.replicas;
  assert.deepEqual([a.id, b.id], ["a", "b"]);
  assert.deepEqual([a.hasSteps, b.model.stepCount], [false, 3]);
  const run = b.latest;
  assert.equal(run.startOf(1), 6000);
  assert.equal(run.endOf(3), 11_000);
  assert.deepEqual([run.axis.from, run.axis.to], [6000, 11_000]);
  assert.equal(run.stepAt(8500), 2);
  assert.deepEqual(model.extent, { from: 6000, to: 11_000 });
  assert.deepEqual(seatsAt(b, 8500), { taken: 1, all: 3 });
  assert.deepEqual(seatsAt(b, 7200), { taken: 0, all: 3 }, "its request has ended");
  assert.deepEqual(seatsAt(b, 100), { taken: 0, all: 3 });
  assert.deepEqual(seatsAt(b, -1), { taken: 0, all: 0 }, "it has not joined");
});

test("bytes may be cut anywhere", () => {
  const bytes = bytesOf(twoReplicas());
  const model = new ClusterModel();
  for (let at = 0; at < bytes.length; at += 7) model.read(bytes.subarray(at, at + 7));
  model.end();
  assert.deepEqual(clusterFacts(model), clusterFacts(two()));
});

test("decisions know what was predicted, what was delivered and how long the first token took", () => {
  const model = two();
  const [ann, , ben] = model.routes;
  assert.equal(model.delivered(ann), 0);
  assert.equal(model.delivered(ben), 0);
  assert.equal(model.ttft(ann.request), 1000);
  const { predicted, delivered, judged, wrong, byPrefix, prompt } = clusterFacts(model);
  assert.deepEqual(
    { predicted, delivered, judged, byPrefix, prompt },
    {
      predicted: 4,
      delivered: 0,
      judged: 2,
      byPrefix: 1,
      prompt: 12,
    },
  );
  assert.deepEqual(wrong, [ben]);
  assert.deepEqual(clusterMoments(model), [ben]);
  assert.equal(openingRoute(model), ben);
});

test("a predicted prefix that is gone has the time of its eviction on the cluster's clock", () => {
  const model = two();
  const [ann, , ben] = model.routes;
  assert.equal(gonePrefix(model, ann), null);
  assert.deepEqual(gonePrefix(model, ben), { from: 0, blocks: 2, at: 8000 });
  const words = plain(clusterSentence(model, ben));
  assertNames(words, "Ben", "9 ms", 4, 5, "none", "evicted", "1 ms");
});

test("requests of one label get numbers, others the cluster's id, on lanes too", () => {
  const b = run("b", make.started(), make.arrived(1, "ab"), make.arrived(2, "cd"));
  const model = modelOf(
    started(),
    joined("b"),
    b,
    routed(7, "b", 1),
    routed(8, "b", 2, { label: "Bo" }),
    routed(9, "b", 3, { label: "Bo" }),
    placed(7, "b", 1, 1),
    placed(9, "b", 2, 3),
  );
  assert.deepEqual(
    model.requests.map(({ name }) => name),
    ["r7", "Bo", "Bo 2"],
  );
  assert.deepEqual(
    model.replicas[0].model.requests.map(({ name }) => name),
    ["r7", "Bo 2"],
  );
});

test("every run of a replica is kept, with its own clock and its own request ids", () => {
  const model = modelOf(twoRuns());
  const b = model.replica("b");
  assert.deepEqual(
    b.runs.map(({ model: log, began, offset }) => [log.requests.length, began, offset]),
    [
      [3, 0, 5000],
      [1, 15_000, 20_000],
    ],
  );
  const [ann, , , eve] = model.routes;
  assert.deepEqual([model.spanOf(ann).name, model.spanOf(eve).name], ["Ann", "Eve"]);
  assert.deepEqual([model.ttftOf(ann), model.ttftOf(eve)], [1000, 2500]);
  assert.deepEqual(
    b.runs.map(({ model: log }) => log.firstLane),
    [3, 3],
  );
  const { prompt, requests } = clusterFacts(model);
  assert.deepEqual([requests, prompt], [4, 17]);
});

test("a replica has seats only while it is there and gets requests", () => {
  const model = modelOf(twoRuns(), ejected("b", 24_000), returned("b", 26_000, true), [
    returned("b", 28_000),
    left("c", 40_000),
  ]);
  const words = (id, at) => presenceWords(model, model.replica(id), at);
  const all = (id, ...times) => times.map((at) => seatsAt(model.replica(id), at).all);
  assert.deepEqual(all("b", 11_999, 12_000, 14_999, 15_000), [3, 0, 0, 3]);
  assert.deepEqual(all("b", 23_999, 24_000, 27_999, 28_000), [3, 0, 0, 3]);
  assert.deepEqual(all("c", 29_999, 30_000, 40_000), [0, 3, 0]);
  assertNames(words("b", 13_000), "left", "12 ms", "died");
  assertNames(words("b", 25_000), "ejected", "24 ms", "silent");
  assert.doesNotMatch(words("b", 25_000), /tried/);
  assertNames(words("b", 27_000), "ejected", "tried again", "26 ms");
  assertNames(words("c", 20_000), "not joined yet");
  assertNames(words("c", 31_000), "0 of 3", "no step yet");
  assert.doesNotMatch(words("c", 31_000), /sent/);
});

test("a gap continues a run: its requests keep their ids, and what came before stays", () => {
  const events = [make.started(), make.arrived(1, "ab"), make.step(1), make.admitted(1)];
  const snapshot = keyframe(new Model(/** @type {any} */ (events)).stateAt(1));
  const gap = { ...snapshot, seq: 9 };
  const model = modelOf(
    started(),
    joined("b"),
    routed(7, "b", 1),
    run("b", ...events),
    placed(7, "b", 1, 1),
    of("b", 9, gap),
  );
  const [first, second] = model.replica("b").runs;
  assert.deepEqual([first.model.requests.length, second.model.requests.length], [1, 1]);
  assert.equal(second.span(1).name, "r7");
  assert.equal(model.runOf(model.routes[0]), first);
});

test("an engine has ended when a client got an error and its log does not go on", () => {
  const error = failed(4, "b", 23_500, { noticed: "error", why: "killed by SIGKILL, and more" });
  const model = modelOf(twoRuns(), error);
  const b = model.replica("b");
  assert.deepEqual(b.deaths, [{ from: 23_500, to: null, why: "killed by SIGKILL" }]);
  assert.deepEqual(
    [23_499, 23_500].map((at) => seatsAt(b, at).all),
    [3, 0],
  );
  assertNames(presenceWords(model, b, 24_000), "no engine", "23.5 ms", "SIGKILL");
  const logged = { type: "request_finished", request: 1, reason: "error" };
  assert.deepEqual(modelOf(twoRuns(), error, of("b", 7, logged)).replica("b").deaths, []);
});

test("a request that fails over is told with what failed and what its client had", () => {
  const model = modelOf(
    twoRuns(),
    failed(4, "b", 23_500, { hop: "stream", remedy: "continued" }),
    routed(4, "a", 24_000, { label: "Eve", attempt: 2, output: 1 }),
    placed(4, "a", 1, 24_000),
    of("a", 1, make.arrived(1, "abcde", { label: "Eve", at: 24_000 })),
    step(1, 1, 25_000, [make.admitted(1), make.allocated(1, 0, 1, 2)], [[1, 0, 5]]).map(
      (event, i) => of("a", 2 + i, event),
    ),
  );
  const words = plain(clusterSentence(model, model.routes.at(-1)));
  assertNames(words, "23.5 ms", "replica b", "connection", "1 token", "again", "replica a");
  assertNames(words, "computes the 5 + 1", "3 ms after");
  const { retried, continued, ttft } = clusterFacts(model);
  assert.deepEqual([retried, continued], [1, 1]);
  assert.equal(ttft.at(-1).value, 2500);
});

test("a reason follows from the numbers of the decision", () => {
  const said = (more) => {
    const model = modelOf(
      started(),
      joined("a"),
      joined("b"),
      joined("c"),
      routed(1, "a", 1, more),
    );
    return plain(clusterSentence(model, model.routes[0]));
  };
  const loads = { a: 8, b: 7, c: 9 };
  const old = { reason: "least_loaded", loads, hits: { a: 0 }, scores: { a: 3, b: 4, c: 5 } };
  assert.doesNotMatch(said(old), /fewest|few/);
  assertNames(said(old), "costs least", 3, 4, "replica b");
  assertNames(said({ ...old, loads: { a: 6, b: 7, c: 9 } }), "fewest requests, 6");
  assert.doesNotMatch(said({ ...old, loads: { a: 7, b: 7, c: 9 } }), /fewest/);
  const drawn = { reason: "less_loaded_of_two", loads, scores: { a: 8, c: 9 } };
  assertNames(said(drawn), "two", "drawn", 8, "replica c has 9");
  const cost = { reason: "lowest_cost", loads, hits: { a: 1, b: 4 }, scores: { a: 2, b: 9 } };
  assertNames(said(cost), "replica b", 4, "not 1", "costs more", 2, 9);
  assertNames(said({ ...cost, loads: { a: 8 } }), "only one", 1, 5);
  const elsewhere = { ...cost, hits: { a: 1, x: 4 } };
  assert.doesNotMatch(said(elsewhere), /replica x/, "it was no candidate");
});

test("marks go on from one replica to the next", () => {
  const events = twoReplicas();
  const model = modelOf(events);
  const [a, b] = model.replicas;
  assert.equal(a.model.firstLane, 0);
  assert.equal(b.model.firstLane, 3);
  assert.equal(model.laneOf(1), 3);
  assert.equal(model.laneOf(99), null);
});

test("a keyframe that repeats what is known is skipped", () => {
  const events = [make.started(), make.arrived(1, "ab"), make.step(1), make.admitted(1)];
  const again = keyframe(new Model(/** @type {any} */ (events)).stateAt(1));
  const model = modelOf(started(), joined("b"), run("b", ...events), of("b", 3, again));
  assert.equal(model.replicas[0].model.requests.length, 1);
});

test("lost, retried and moved requests are counted", () => {
  const model = modelOf(
    started(),
    joined("a"),
    joined("b"),
    routed(1, "a", 10),
    routed(2, "a", 20),
    left("a", 30),
    lost(1, "a", 30),
    routed(2, "b", 30, { attempt: 2 }),
    moved(2, "b", "a", 40),
  );
  const facts = clusterFacts(model);
  assert.deepEqual([facts.requests, facts.lost, facts.retried], [2, 1, 1]);
  assert.equal(model.replica("a").left.at, 30);
  assert.equal(model.request(2).moves[0].target, "a");
  assert.equal(clusterMoments(model).length, 2);
  assertNames(plain(clusterSentence(model, model.routes[2])), "r2", "again", "b", 2, "move");
});

test("an invalid line is named with its number", () => {
  const cases = [
    [[{ type: "run_started" }], 1],
    [[started(), { type: "routed" }], 2],
    [[started(), { type: "what" }], 2],
    [[started(), routed(1, "x", 1)], 2],
    [[{ ...started(), schema: 9 }], 1],
    [[started(), joined("b"), ...run("b", make.started(), make.admitted(4))], 4],
  ];
  for (const [events, line] of cases) assert.throws(() => modelOf(events), { line });
});

test("each reason has words, and a decision without a known one is told as it is", () => {
  const [, reasons] = /reason:'(\S+)/.exec(VOCABULARY.routed);
  assert.deepEqual(Object.keys(REASONS).sort(), reasons.split("|"));
  const model = two();
  const route = model.routes[2];
  const said = Object.keys(REASONS).map((reason) =>
    plain(clusterSentence(model, { ...route, reason })),
  );
  assert.equal(new Set(said).size, said.length);
  assertNames(plain(clusterSentence(model, { ...route, reason: "by_moonlight" })), "moonlight");
  assertNames(plain(clusterSentence(model, null)), 3, 2);
});
