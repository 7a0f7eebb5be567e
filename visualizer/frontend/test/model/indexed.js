/**
 * Reads logs in both forms and compares what a board learns of them. FOLDER has NAME.jsonl and NAME.index for each.
 * Prints how many events were compared, or for a damaged index the error and how many events come before it.
 *
 *   node indexed.js FOLDER
 */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ClusterModel } from "../../src/cluster/cluster_model.ts";
import { LogReader } from "../../src/host/log_reader.ts";
import { Model, plain, sentence } from "../../src/model/index.ts";
import { keyframe } from "../../src/model/keyframe.ts";
import { RunSummary } from "../../src/model/run_summary.ts";
import { measured, stepsOf } from "./events.js";

const folder = process.argv[2];
const files = readdirSync(folder);
// The run of a replica in which a request was placed holds the other runs, and they this one.
const written = (value) =>
  JSON.stringify(value, (name, one) => (name === "run" ? (one?.parts.indexOf(one) ?? null) : one));
const told = [];

for (const file of files.filter((name) => name.endsWith(".cluster"))) {
  const [one, other] = [new ClusterModel(), new ClusterModel()];
  const readings = [
    new LogReader(readFileSync(join(folder, file)), undefined, one),
    new LogReader(readFileSync(join(folder, file.replace(".cluster", ".lines"))), undefined, other),
  ];
  for (const reading of readings) await reading.follow(() => {});
  const error = readings[0].error;
  told.push({ events: one.lineCount, error: error?.message ?? null });
  if (error) continue;
  const facts = ({ router, extent, replicas, routes, requests }) => [
    [router, extent, replicas.map(({ id, left, role }) => [id, left, role])],
    routes.map((route) => ({ ...route, request: route.request.id })),
    requests.map(({ routes: own, ...request }) => [request, own.length]),
  ];
  assert.equal(written(facts(one)), written(facts(other)));
  const runs = (cluster) => cluster.replicas.flatMap((replica) => replica.runs);
  runs(one).forEach(({ model, axis, requests, end }, at) => {
    const whole = runs(other)[at];
    const events = whole.model.events.length;
    assert.equal(
      written(model.events.range(0, events)),
      written(whole.model.events.range(0, events)),
    );
    assert.equal(
      written([axis, [...requests], end]),
      written([whole.axis, [...whole.requests], whole.end]),
    );
    assert.equal(written(model.requests), written(whole.model.requests));
    for (let step = model.lastStep; step >= model.firstStep; step -= 7)
      assert.equal(
        written(keyframe(model.stateAt(step))),
        written(keyframe(whole.model.stateAt(step))),
      );
  });
}
for (const file of files.filter((name) => name.endsWith(".index"))) {
  const reading = new LogReader(readFileSync(join(folder, file)));
  await reading.follow(() => {});
  const { model, error } = reading;
  const whole = new Model();
  whole.read(readFileSync(join(folder, file.replace(".index", ".jsonl"))));
  const count = error ? model.events.length : whole.events.length;
  const events = model.events.range(0, count);
  assert.equal(written(events), written(whole.events.range(0, count)));
  told.push({ events: count, error: error?.message ?? null });
  if (error) continue;
  // What the index knows is what a pass over the events finds.
  const names = Object.keys(whole.requests[0] ?? {}).filter((name) => name !== "content");
  names.push("tokens", "texts", "hashes", "logprobs", "short", "appeared");
  const spans = ({ requests }) =>
    requests.map((span) => ({
      ...Object.fromEntries(names.map((name) => [name, span[name]])),
      ttft: null,
      slowest: null,
    }));
  assert.deepEqual(spans(model), spans(whole), file);
  for (const name of ["gaps", "info", "settings", "classes", "source"])
    assert.deepEqual(model[name], whole[name], `${file}: ${name}`);
  for (const name of ["expertLoads", "waitCauses", "laneCount", "stepsBefore", "firstSeq"])
    assert.deepEqual(model[name], whole[name], `${file}: ${name}`);
  assert.deepEqual(stepsOf(model), stepsOf(whole));
  assert.deepEqual(measured(model), measured(whole));
  assert.deepEqual(model.paused.intervals, whole.paused.intervals);
  if (!whole.stepCount) continue;
  const slo = { ttft: 40_000, itl: 5_000 };
  assert.deepEqual(new RunSummary(model).of(slo), new RunSummary(whole).of(slo));
  const times = ({ waterfall }) =>
    waterfall.all().map(({ request, spans, ...time }) => [request.id, spans, time]);
  assert.deepEqual(times(model), times(whole));
  for (const { step } of stepsOf(whole)) {
    assert.deepEqual(model.waitIn(step), whole.waitIn(step));
    assert.deepEqual(model.measures.chunks(step), whole.measures.chunks(step));
    assert.deepEqual(model.measures.computed(step), whole.measures.computed(step));
  }
  // A keyframe has null or "" for what a node does not have.
  const some = (_key, value) => (value === null || value === "" ? undefined : value);
  const known = (state) => [
    JSON.parse(JSON.stringify(keyframe(state), some)),
    state.nodes
      .list()
      .map(({ used, below, content }) => [used, state.isHashed && below, content.hashes]),
    state.requests.list().map(({ content }) => content.hashes),
    [state.counts, state.reach, state.waitingCount, state.suspendedCount],
  ];
  const steps = stepsOf(whole);
  // A page reads only the events around the steps that it shows. (The state of "slices" is damaged.)
  const lazy = new LogReader(readFileSync(join(folder, file)), undefined, undefined, true);
  await lazy.follow(() => {});
  const shares = file === "slices.index" ? [] : [0.9, 0, 0.4];
  for (const at of shares.map((share) => Math.floor(share * steps.length))) {
    const { step } = steps[at];
    await lazy.model.fetch(step);
    assert.equal(lazy.model.fetch(step), null);
    assert.deepEqual(plain(sentence(lazy.model, step)), plain(sentence(whole, step)));
    assert.deepEqual(lazy.model.frame(step).counts, whole.frame(step).counts);
  }
  for (let at = steps.length - 1; at >= 0; at -= at % 3 ? 1 : 5) {
    const { step } = steps[at];
    assert.deepEqual(known(model.stateAt(step)), known(whole.stateAt(step)), `${file}: ${step}`);
    assert.deepEqual(plain(sentence(model, step)), plain(sentence(whole, step)));
  }
}
process.stdout.write(written(told));
