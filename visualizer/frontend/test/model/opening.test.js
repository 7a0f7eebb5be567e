import assert from "node:assert/strict";
import test from "node:test";
import { openingRequest, openingScores, openingStep } from "../../src/model/index.ts";
import * as make from "./events.js";
import * as scenes from "./scenes.js";

const { admitted, allocated, arrived, finished, scheduled, started, step } = make;

/** Points of each step. */
const points = (...events) => openingScores(modelOf(...events)).map((quarters) => quarters / 4);

const { modelOf } = scenes;
const one = scenes.one();
/** r2 hits four of its five prompt tokens. */
const hit = scenes.two().slice(0, -1);
const decodes = (number, ...rows) => [
  step(number),
  scheduled(rows.map(([id, start]) => [id, start, 1])),
  finished(rows.map(([id]) => [id, "x"])),
];

test("running and waiting requests count, up to a limit", () => {
  const ids = Array.from({ length: 12 }, (_, index) => index + 1);
  const events = [started({ max_batch_size: 12 }), ...ids.map((id) => arrived(id, "a"))];
  const waits = [step(1), scheduled([]), finished()];
  assert.deepEqual(points(events, waits), [5]);
  const runs = [step(2), ...ids.map((id) => admitted(id))];
  assert.deepEqual(points(events, waits, runs), [5, 2]);
});

test("a hit of half the prompt, a preemption with three fates, and what they are worth", () => {
  const preempts = [
    step(3),
    make.preempted(2, 1),
    allocated(1, 3),
    scheduled([[1, 6, 1]], { blocked: [2, "after_preemption", 0, 0, 0] }),
    finished([[1, "h"]]),
  ];
  const log = [started({ num_blocks: 4 }), one, hit, preempts];
  // One runs; two run, one hit; one runs and one waits: the victim's blocks are others' and taken.
  assert.deepEqual(points(log), [0.25, 2.5, 6 + 2 * 3 + 1 + 0.25]);
  assert.equal(openingStep(modelOf(log)), 3);
  assert.equal(openingRequest(modelOf(log)), 2);
});

test("a block that the cache keeps is a fate of its own", () => {
  const log = [
    started(),
    one,
    [arrived(2, "z"), step(2), admitted(2), allocated(2, 3)],
    [make.preempted(1, 2), scheduled([[2, 0, 1]]), finished([[2, "y"]])],
  ];
  // Blocks 0 and 1 of r1 stay in the cache, block 2 is free.
  assert.equal(points(log)[1], 6 + 3 + 1 + 0.25);
});

test("an eviction, a copy, a fork and a rejected draft", () => {
  const evicts = [
    [make.ended(1), arrived(2, "z"), step(2), make.evicted(1, 2)],
    [admitted(2), allocated(2, 1), scheduled([[2, 0, 1]]), finished([[2, "y"]])],
  ];
  const gone = modelOf(started(), one, [...evicts[0]], evicts[1]);
  assert.deepEqual(
    openingScores(gone).map((quarters) => quarters / 4),
    [0, 1 + 0.25],
  );
  assert.deepEqual([openingStep(gone), openingRequest(gone)], [2, 2]);
  const guess = (accepted) => [
    step(2),
    scheduled([[1, 5, 3, [7, 8]]]),
    finished([[1, "ghi".slice(0, 1 + accepted), accepted]]),
  ];
  assert.equal(points(started(), one, guess(0))[1], 3.25);
  assert.equal(points(started(), one, guess(2))[1], 0.25);
  const two = [step(2), make.forked(2, 1, 1), make.copied(2, 2, 2, 3)];
  assert.equal(points(started(), one, two)[1], 3.5, "a fork and a copy count once");
});

test("of equal steps with an event, the earliest wins, and it wins over one without", () => {
  const guess = (number, start) => [
    step(number),
    scheduled([[1, start, 3, [7, 8]]]),
    finished([[1, "g", 0]]),
  ];
  const wait = (number, start) => [step(number), scheduled([[1, start, 1]]), finished([[1, "x"]])];
  const drafts = modelOf(started({ num_blocks: 40 }), one, guess(2, 5), guess(3, 6), wait(4, 7));
  assert.equal(openingStep(drafts), 2);
  const queue = [arrived(2, "a"), wait(4, 7), wait(5, 8)];
  const waits = modelOf(started({ num_blocks: 40 }), one, wait(2, 5), wait(3, 6), ...queue);
  assert.equal(openingStep(waits), 4);
});

test("the first and the last tenth count less; of equal steps without an event, the last wins", () => {
  const rest = Array.from({ length: 19 }, (_, index) => decodes(index + 2, [1, index + 5]));
  const scores = points(started({ num_blocks: 40 }), one, ...rest);
  assert.equal(scores.length, 20);
  assert.deepEqual(scores.slice(0, 3), [-3.75, -3.75, 0.25]);
  assert.deepEqual(scores.slice(-3), [0.25, -3.75, -3.75]);
  assert.equal(openingStep(modelOf(started({ num_blocks: 40 }), one, ...rest)), 18);
});
