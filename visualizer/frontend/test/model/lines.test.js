import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { LogError, Model, plain, sentence } from "../../src/model/index.ts";
import { assertNames } from "../facts.js";
import { core } from "./core.js";
import * as make from "./events.js";

const encoder = new TextEncoder();
const storytellers = readFileSync(new URL("../storytellers.jsonl", import.meta.url), "utf8");

/** A log with letters of one to four bytes, and enough steps for some copies of the state. */
function long(steps = 1200) {
  const events = [
    make.started({ num_blocks: 6 }),
    make.arrived(1, "a\u00e9\u20ac\u{1f409}", { max_tokens: 9 }),
  ];
  events.push(make.step(1), make.admitted(1), make.allocated(1, 0, 1), make.scheduled([[1, 0, 4]]));
  events.push(make.finished([[1, "\u{1f409}"]]));
  for (let step = 2; step <= steps; step++) {
    const id = step;
    events.push(make.arrived(id, "\u20ac\u{1f409}"), make.step(step));
    events.push(
      make.scheduled([], { blocked: [2, "batch_full", step - 2, 1, 0] }),
      make.finished(),
    );
  }
  return events;
}

const textOf = (events) => events.map((event) => `${JSON.stringify(event)}\n`).join("");

/** Numbers that look random, the same in every run. */
function* numbers(seed) {
  for (let value = seed; ; ) yield (value = (value * 1103515245 + 12345) % 2 ** 31) / 2 ** 31;
}

/** Bytes cut anywhere, into pieces of up to `most`. */
function* cut(bytes, seed, most) {
  const random = numbers(seed);
  for (let at = 0; at < bytes.length; ) {
    const piece = bytes.slice(at, at + 1 + Math.floor(random.next().value * most));
    at += piece.length;
    yield piece;
    piece.fill(0); // the reader must not keep a reference to the piece
  }
}

function readIn(pieces) {
  const model = new Model();
  for (const piece of pieces) model.read(piece);
  model.end();
  return model;
}

/** Everything that panels read from a model, as plain values. */
function told(model) {
  const steps = [model.firstStep, (model.firstStep + model.lastStep) >> 1, model.lastStep];
  return {
    steps: make.stepsOf(model),
    lives: model.requests,
    measures: make.measured(model),
    frames: steps.map((step) => core(model.frame(step).state)),
    sentences: steps.map((step) => plain(sentence(model, step))),
  };
}

test("an event by its number is its parsed line", () => {
  const rows = storytellers.trimEnd().split("\n");
  const model = readIn([encoder.encode(storytellers)]);
  assert.equal(model.events.length, rows.length);
  rows.forEach((row, seq) => assert.deepEqual(model.event(seq), JSON.parse(row)));
  assert.deepEqual(
    model.events.range(0, model.events.length),
    rows.map((row) => JSON.parse(row)),
  );
  assert.deepEqual(
    model.eventsIn(3, 5),
    rows.slice(3, 6).map((row) => JSON.parse(row)),
  );
});

test("appended events are found like those of a file", () => {
  const events = long();
  const model = new Model();
  for (let at = 0; at < events.length; at += 7) model.append(events.slice(at, at + 7));
  assert.deepEqual(model.events.range(0, model.events.length), events);
  assert.deepEqual(told(model), told(readIn([encoder.encode(textOf(events))])));
});

test("bytes cut anywhere, even within letters, give the same model as whole bytes", () => {
  for (const text of [textOf(long()), storytellers]) {
    const bytes = encoder.encode(text);
    const whole = told(readIn([bytes]));
    for (const [seed, most] of [
      [1, 3],
      [2, 100],
      [3, 5000],
      [4, 1 << 17],
      [5, 1 << 20],
    ]) {
      assert.deepEqual(told(readIn(cut(bytes, seed, most))), whole, `seed ${seed}, ${most} bytes`);
    }
  }
});

test("events are available before the rest is read", () => {
  const rows = textOf(long()).split("\n");
  const model = new Model();
  model.read(encoder.encode(`${rows.slice(0, 2500).join("\n")}\n`));
  const { lastStep } = model;
  const before = core(model.frame(300).state);
  assert.ok(lastStep > 500 && lastStep < 700);
  model.read(encoder.encode(rows.slice(2500).join("\n")));
  model.end();
  assert.equal(model.lastStep, 1200);
  assert.deepEqual(core(model.frame(300).state), before);
});

test("an incomplete last line is dropped, a complete one without a line break is not", () => {
  const bytes = encoder.encode(textOf(long(20)));
  const whole = readIn([bytes]).events.length;
  assert.equal(readIn([bytes.slice(0, -1)]).events.length, whole);
  for (const torn of [2, 3, 20]) {
    assert.equal(readIn(cut(bytes.slice(0, -torn), torn, 50)).events.length, whole - 1);
  }
});

test("an error names its line, and the events before it stay", () => {
  const rows = textOf(long()).trimEnd().split("\n");
  const broken = { bad: "{", unknown: '{"type":"x"}', contradiction: JSON.stringify(make.step(7)) };
  for (const [name, row] of Object.entries(broken)) {
    for (const most of [50, 1 << 17]) {
      const lines = rows.with(3000, row);
      lines.splice(10, 0, "", "  "); // empty lines count as lines, not as events
      const model = new Model();
      const read = () => {
        for (const piece of cut(encoder.encode(lines.join("\n")), 6, most)) model.read(piece);
      };
      assert.throws(read, (error) => error instanceof LogError && error.line === 3003, name);
      assert.ok(model.lastStep >= 748 && model.lastStep <= 750, name);
      assert.deepEqual(model.event(2999), JSON.parse(rows[2999]));
      assert.equal(model.frame(700).waiting.length, 699);
      assertNames(plain(sentence(model, model.lastStep)), model.lastStep);
    }
  }
});
