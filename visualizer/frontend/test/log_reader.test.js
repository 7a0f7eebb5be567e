import assert from "node:assert/strict";
import test from "node:test";
import { gzipSync } from "node:zlib";
import { LogReader } from "../src/host/log_reader.ts";
import { LogError, Model, openingStep, SEARCHED } from "../src/model/index.ts";
import * as make from "./model/events.js";

/** `steps` steps of nine events each: three requests arrive and are aborted. */
function log(steps, { preemptedAt } = {}) {
  const events = [make.started()];
  for (let step = 1; step <= steps; step++) {
    const ids = [1, 2, 3].map((nth) => 3 * step + nth);
    events.push(
      ...ids.map((id) => make.arrived(id, "a")),
      ...ids.map((id) => make.ended(id, "abort")),
    );
    events.push(make.step(step));
    if (step === preemptedAt)
      events.push(make.arrived(1, "a"), make.admitted(1), make.preempted(1, 1));
    events.push(make.scheduled([]), make.finished());
  }
  return new TextEncoder().encode(events.map((event) => `${JSON.stringify(event)}\n`).join(""));
}

async function finish(reading) {
  const shares = [];
  await reading.follow(() => shares.push(reading.share));
  assert.ok(reading.done);
  return shares;
}

const noop = () => {};

test("a short log is read completely before it is shown", async () => {
  const reading = new LogReader(log(200));
  await reading.until({ step: 3 }, noop);
  assert.ok(reading.done);
  assert.equal(reading.model.lastStep, 200);
});

test("a long log is shown once its step is read, and then read to its end", async () => {
  const bytes = log(8000);
  for (const packed of [bytes, gzipSync(bytes)]) {
    const reading = new LogReader(packed);
    const heard = [];
    await reading.until({ step: 3, range: [3000, 4000] }, () => heard.push(reading.share));
    assert.ok(!reading.done);
    assert.ok(reading.model.lastStep > 4000);
    const rest = await finish(reading);
    const shares = [...heard, ...rest];
    assert.deepEqual(
      shares,
      shares.toSorted((a, b) => a - b),
    );
    assert.equal(shares.at(-1), 1);
    const whole = new Model();
    whole.read(bytes);
    assert.deepEqual(make.stepsOf(reading.model), make.stepsOf(whole));
    assert.deepEqual(make.measured(reading.model), make.measured(whole));
  }
});

test("without a given step, a long log is read as far as an opening step is searched", async () => {
  const reading = new LogReader(log(20_000, { preemptedAt: 19_000 }));
  await reading.until({}, noop);
  assert.ok(!reading.done && reading.model.events.length > SEARCHED);
  assert.ok(reading.model.lastStep < 19_000);
  const early = openingStep(reading.model);
  await finish(reading);
  assert.equal(openingStep(reading.model), early, "the rest of the log does not change it");
  assert.equal(openingStep(reading.model, Infinity), 19_000, "but it has the best step of all");
});

test("reading continues until the selected request is there", async () => {
  const reading = new LogReader(log(8000));
  await reading.until({ step: 1, selected: 3 * 4000 }, noop);
  assert.ok(reading.model.request(12_000));
  await finish(reading);
});

test("an error is reported, and the events before it are there", async () => {
  const bytes = log(4000);
  const broken = new LogReader(new Uint8Array([...bytes, ...new TextEncoder().encode("oh\n")]));
  await finish(broken);
  assert.ok(broken.error instanceof LogError);
  assert.equal(broken.error.line, 1 + 9 * 4000 + 1);
  assert.equal(broken.model.lastStep, 4000);
  const torn = new LogReader(gzipSync(bytes).subarray(0, -2000));
  await finish(torn);
  assert.ok(torn.error && !(torn.error instanceof LogError), "the bytes are at fault, not a line");
  assert.ok(torn.model.lastStep > 100);
});

test("reading stops when the rest is not wanted", async () => {
  const reading = new LogReader(log(8000), () => false);
  await finish(reading);
  assert.ok(reading.model.lastStep < 8000);
});
