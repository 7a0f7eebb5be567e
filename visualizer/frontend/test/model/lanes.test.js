/** A request gets the smallest free lane, keeps it until it ends, and shares it with no live request. */

import assert from "node:assert/strict";
import test from "node:test";
import { TrimmedModel } from "../../src/live/trimmed_model.ts";
import { Model, State } from "../../src/model/index.ts";
import { keyframe } from "../../src/model/keyframe.ts";
import { laneOf, leaveLane, MARKS, takeLane } from "../../src/model/lanes.ts";
import * as make from "./events.js";

const { admitted, arrived, ended, finished, forked, preempted, scheduled, started, step } = make;

/** Takes and leaves lanes in order: `[step, request, label?]` takes one, `[step, -request]` leaves it. */
function play(moves, seats = 4) {
  return moves.reduce(
    (lanes, [at, request, label = ""]) =>
      request < 0
        ? leaveLane(lanes, -request, at)
        : takeLane(lanes, { request, label, step: at, seats }),
    [],
  );
}

test("the smallest free lane, kept until the end", () => {
  const lanes = play([
    [1, 11],
    [1, 12],
    [1, 13],
    [2, -12],
    [5, 14],
  ]);
  assert.deepEqual(
    [11, 12, 13, 14].map((request) => laneOf(lanes, request)),
    [0, -1, 2, 1],
  );
});

test("seats that no request takes cost nothing", () => {
  assert.equal(laneOf(play([[1, 11, "Ada"]], 2 ** 62), 11), 0);
});

test("a lane rests for two steps, if another of the seats' lanes is free", () => {
  const ends = [
    [1, 11],
    [1, 12],
    [3, -11],
  ];
  const laneAt = (at, seats) => laneOf(play([...ends, [at, 13]], seats), 13);
  assert.deepEqual([laneAt(4, 4), laneAt(5, 4), laneAt(6, 4)], [2, 2, 0]);
  assert.deepEqual([laneAt(4, 2), laneAt(5, 2), laneAt(6, 2)], [0, 0, 0]);
});

test("a request does not get the mark of one that ended in the same step", () => {
  const lanes = play(
    [
      [1, 11],
      [1, -11],
      [1, 12],
    ],
    1,
  );
  assert.equal(laneOf(lanes, 12), 1);
});

test("the thirty-first live request repeats a mark, and the next one does not", () => {
  const crowd = Array.from({ length: MARKS + 1 }, (_, at) => [1, 101 + at]);
  assert.equal(laneOf(play(crowd, 64), 101 + MARKS), MARKS);
  // Lane 0 is free, but the request in lane 30 has its mark.
  const lanes = play([...crowd, [2, -101], [2, -106], [9, 200]], 64);
  assert.equal(laneOf(lanes, 200), 5);
});

test("a request returns to its label's lane, without a rest", () => {
  const lanes = play([
    [1, 11, "Ada"],
    [1, 12, "Bo"],
    [2, -12],
    [2, -11],
    [3, 13, "Bo"],
    [3, 14, "Ada"],
  ]);
  assert.deepEqual([laneOf(lanes, 13), laneOf(lanes, 14)], [1, 0]);
});

test("not if another one with the label lives, and not in the step in which the last one ended", () => {
  const crowd = play([
    [1, 11, "load"],
    [1, 12, "load"],
    [2, -12],
    [2, -11],
    [3, 13, "load"],
    [3, 14, "load"],
  ]);
  assert.deepEqual([laneOf(crowd, 13), laneOf(crowd, 14)], [0, 2]);
  const same = play([
    [1, 11, "Ada"],
    [2, -11],
    [2, 12, "Ada"],
  ]);
  assert.equal(laneOf(same, 12), 1);
});

test("a model's lanes: from the first admission, through a preemption, after the end", () => {
  const model = new Model([
    started(),
    arrived(1, "a"),
    arrived(2, "b", { n: 2 }),
    arrived(3, "c"),
    step(1),
    admitted(1),
    scheduled([[1, 0, 1]]),
    finished([[1, "x"]]),
    step(2),
    preempted(1, 2),
    admitted(2),
    scheduled([[2, 0, 1]]),
    forked(4, 2, 1),
    finished([
      [2, "x"],
      [4, "y"],
    ]),
    step(3),
    admitted(1, 0, [], true),
    scheduled([[1, 0, 1]]),
    finished([[1, "x"]]),
    ended(1),
    ended(2),
    step(4),
    scheduled([]),
    finished(),
  ]);
  const at = (number) => [1, 2, 3, 4].map((request) => model.laneOf(request, number));
  assert.deepEqual(at(1), [0, null, null, null]);
  assert.deepEqual(at(2), [0, 1, null, 2]);
  assert.deepEqual(at(4), [0, 1, null, 2]);
  assert.equal(model.laneOf(3), null);
  assert.equal(model.laneCount, 3);
});

/** A random number generator, so that a failure can be repeated: mulberry32. */
function random(seed) {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) % below;
  };
}

const pick = (below, list) => list[below(list.length)];

/**
 * A random log: arrivals, admissions, forks, preemptions and ends in any order that an engine may log. At most
 * `most` admitted requests live in a step.
 */
function randomLog(seed, most = MARKS) {
  const below = random(seed);
  const seats = 1 + below(most);
  const events = [started({ max_batch_size: seats, num_blocks: 1 })];
  const live = { waiting: [], running: [] };
  const admittedOnce = new Set();
  let last = 0;
  const arrive = () => {
    const label = below(3) ? "" : pick(below, ["Ada", "Bo", "Cleo"]);
    live.waiting.push(++last);
    events.push(arrived(last, "a", { label }));
  };
  const finish = (list) => {
    const [id] = list.splice(below(list.length), 1);
    admittedOnce.delete(id);
    events.push(ended(id, "abort"));
  };
  for (let number = 1; number <= 60; number++) {
    for (let i = below(4); i > 0; i--) arrive();
    if (live.waiting.length && !below(8)) finish(live.waiting);
    events.push(step(number));
    if (live.running.length > 1 && !below(4)) {
      const [victim] = live.running.splice(below(live.running.length), 1);
      live.waiting.unshift(victim);
      events.push(preempted(victim, live.running[0]));
    }
    while (live.waiting.length && live.running.length < seats && below(5)) {
      const [id] = live.waiting;
      if (!admittedOnce.has(id) && admittedOnce.size >= most) break;
      live.waiting.shift();
      live.running.push(id);
      events.push(admitted(id, 0, [], admittedOnce.has(id)));
      admittedOnce.add(id);
    }
    events.push(scheduled(live.running.map((id) => [id, 0, 1])));
    if (
      live.running.length &&
      live.running.length < seats &&
      admittedOnce.size < most &&
      !below(6)
    ) {
      events.push(forked(++last, live.running[0], 1));
      live.running.push(last);
      admittedOnce.add(last);
    }
    events.push(finished(live.running.map((id) => [id, "x"])));
    while (live.running.length && !below(3)) finish(live.running);
  }
  return events;
}

/** The requests that were admitted by a step and live in it. */
function liveIn(model, number) {
  return model.requests.filter(
    ({ lanedAt, finished: end }) => lanedAt <= number && (end?.step ?? number) >= number,
  );
}

/** Pairs of requests with one mark, each in order of admission. */
function alikeIn(live) {
  const first = new Map();
  return [...live]
    .sort((a, b) => a.lanedAt - b.lanedAt)
    .flatMap((span) => {
      const mark = span.lane % MARKS;
      const other = first.get(mark);
      first.set(mark, span);
      return other ? [[other, span]] : [];
    });
}

test("with at most thirty live admitted requests, no two look alike in any step of random logs", () => {
  let most = 0;
  for (let seed = 1; seed <= 150; seed++) {
    const model = new Model(randomLog(seed, MARKS));
    for (const { step: number } of make.stepsOf(model)) {
      const live = liveIn(model, number);
      most = Math.max(most, live.length);
      assert.deepEqual(alikeIn(live), [], `seed ${seed}, step ${number}`);
    }
  }
  assert.ok(most > 25, `the random logs have at most ${most} live requests`);
});

test("with more, only requests that were admitted to a full house repeat a mark", () => {
  let repeats = 0;
  for (let seed = 1; seed <= 150; seed++) {
    const model = new Model(randomLog(seed, MARKS + 12));
    for (const { step: number } of make.stepsOf(model)) {
      for (const [, { id, lanedAt }] of alikeIn(liveIn(model, number))) {
        const others = liveIn(model, lanedAt).length - 1;
        assert.ok(others >= MARKS, `seed ${seed}, step ${number}: r${id} repeats a mark`);
        repeats += 1;
      }
    }
  }
  assert.ok(repeats > 100);
});

test("a log read in pieces, and one that begins with a keyframe, have the same lanes", () => {
  for (let seed = 1; seed <= 30; seed++) {
    const events = randomLog(seed);
    const whole = new Model(events);
    const pieces = new Model();
    for (let from = 0; from < events.length; from += 17)
      pieces.append(events.slice(from, from + 17));
    const lanes = ({ requests }) => new Map(requests.map(({ id, lane }) => [id, lane]));
    assert.deepEqual(lanes(pieces), lanes(whole));
    const state = new State();
    const cut = Math.floor(events.length / 2);
    for (const event of events.slice(0, cut)) state.apply(event);
    const joined = new Model([JSON.parse(JSON.stringify(keyframe(state))), ...events.slice(cut)]);
    const trimmed = new TrimmedModel(whole, cut);
    while (!trimmed.advance(1));
    for (const model of [joined, trimmed.model])
      for (const [id, lane] of lanes(model)) assert.equal(lane, whole.laneOf(id), `seed ${seed}`);
  }
});

test("a keyframe without lanes, of an older log: running and preempted requests get some", () => {
  const state = new State();
  const before = [arrived(1, "a"), arrived(2, "b"), arrived(3, "c"), step(1)];
  for (const event of [started(), ...before, admitted(1), admitted(2), preempted(1, 2)])
    state.apply(event);
  const frame = keyframe(state);
  delete frame.state.lanes;
  const model = new Model([frame]);
  assert.deepEqual(
    [1, 2, 3].map((id) => model.laneOf(id)),
    [1, 0, null],
  );
});
