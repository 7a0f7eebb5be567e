import assert from "node:assert/strict";
import { test } from "node:test";

import { clusterFacts } from "../../src/cluster/cluster_facts.ts";
import { ClusterModel } from "../../src/cluster/cluster_model.ts";
import { clusterMoments, openingRoute } from "../../src/cluster/cluster_moments.ts";
import { clusterSentence, REASONS, seatsAt } from "../../src/cluster/cluster_words.ts";
import { gonePrefix } from "../../src/cluster/gone_prefix.ts";
import { Model, plain } from "../../src/model/index.ts";
import { keyframe } from "../../src/model/keyframe.ts";
import { assertNames } from "../facts.js";
import * as make from "../model/events.js";
import {
  bytesOf,
  joined,
  left,
  lost,
  modelOf,
  moved,
  of,
  placed,
  routed,
  run,
  started,
  twoReplicas,
} from "./events.js";

const two = () => modelOf(twoReplicas());

test("a cluster log splits into one model per replica, on one clock", () => {
  const model = two();
  const [a, b] = model.replicas;
  assert.deepEqual([a.id, b.id], ["a", "b"]);
  assert.deepEqual([a.hasSteps, b.model.stepCount], [false, 3]);
  assert.equal(b.startOf(1), 6000);
  assert.equal(b.endOf(3), 11_000);
  assert.deepEqual([b.axis.from, b.axis.to], [6000, 11_000]);
  assert.equal(b.stepAt(8500), 2);
  assert.deepEqual(model.extent, { from: 6000, to: 11_000 });
  assert.deepEqual(seatsAt(b, 8500), { taken: 1, all: 3 });
  assert.deepEqual(seatsAt(b, 7200), { taken: 0, all: 3 }, "its request has ended");
  assert.deepEqual(seatsAt(b, 100), { taken: 0, all: 3 });
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
  const model = two();
  const route = model.routes[2];
  const said = Object.keys(REASONS).map((reason) =>
    plain(clusterSentence(model, { ...route, reason })),
  );
  assert.equal(new Set(said).size, said.length);
  assertNames(plain(clusterSentence(model, { ...route, reason: "by_moonlight" })), "moonlight");
  assertNames(plain(clusterSentence(model, null)), 3, 2);
});
