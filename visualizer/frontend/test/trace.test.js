import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { traceOf } from "../src/host/trace.ts";
import { Model } from "../src/model/index.ts";
import { parseLog } from "./model/read.js";

const { events } = parseLog(readFileSync(new URL("./storytellers.jsonl", import.meta.url), "utf8"));

const parsed = (model) => JSON.parse(new TextDecoder().decode(traceOf(model)));

for (const [name, log] of [
  ["a log with times", events],
  ["a log without times", events.map(({ t, at, ...event }) => event)],
]) {
  test(`${name}: one slice per step, one track per request, tiled by its causes`, () => {
    const model = new Model(structuredClone(log));
    const { traceEvents } = parsed(model);
    const slices = traceEvents.filter(({ ph }) => ph === "X");
    const steps = slices.filter(({ pid }) => pid === 1);
    assert.equal(steps.length, model.stepCount);
    steps.slice(1).forEach(({ ts }, i) => assert.ok(ts >= steps[i].ts + steps[i].dur));
    const isTimed = model.waterfall.unit === "us";
    assert.equal(
      steps[0].dur,
      isTimed ? model.measures.end.at(0) - model.measures.start.at(0) : 1000,
    );
    for (const { id, name: who } of model.requests) {
      const track = traceEvents.filter(({ pid, tid }) => pid === 2 && tid === id);
      const [head, whole, ...causes] = track;
      assert.equal(head.args.name, who);
      assert.equal(whole.name, who);
      let at = whole.ts;
      for (const { ts, dur } of causes) {
        assert.equal(ts, at, "no gap and no overlap");
        at += dur;
      }
      assert.equal(at, whole.ts + whole.dur);
      const { total } = model.waterfall.of(id);
      assert.equal(whole.dur, isTimed ? total : 1000 * total);
    }
  });
}

test("the counters are the measures of the strip", () => {
  const model = new Model(structuredClone(events));
  const { measures } = model;
  const { traceEvents } = parsed(model);
  let last = null;
  for (let i = 0; i < model.stepCount; i += 1) {
    const at = measures.start.at(i);
    last = traceEvents.find(({ name, ts }) => name === "KV blocks" && ts === at)?.args ?? last;
    const { used, cached, free } = measures;
    assert.deepEqual(last, { used: used.at(i), cached: cached.at(i), free: free.at(i) });
  }
});
