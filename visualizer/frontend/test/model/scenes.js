/**
 * Steps in which one thing happens that a sentence tells. Tests hold the facts of each; its wording is in
 * `wording.snapshot.json` alone.
 */

import { Model } from "../../src/model/index.ts";
import * as make from "./events.js";

const { admitted, allocated, arrived, finished, inserted, scheduled, started, step } = make;

/** Builds the model of events in nested lists. */
export const modelOf = (...events) => new Model(events.flat(Infinity));

/** r1 computes "abcde" in blocks 0, 1, 2; 0 and 1 are node 1. */
export const one = (options) => [
  arrived(1, "abcde", options),
  step(1),
  admitted(1),
  allocated(1, 0, 1, 2),
  scheduled([[1, 0, 5]]),
  finished([[1, "f"]]),
  inserted(1, 1, 0, 0, 1),
];
/** r2 hits four tokens of it and takes block 3. */
export const two = (options) => [
  arrived(2, "abcdx", options),
  step(2),
  admitted(2, 1, [0, 1]),
  allocated(2, 3),
  scheduled([
    [1, 5, 1],
    [2, 4, 1],
  ]),
  finished([
    [1, "g"],
    [2, "y"],
  ]),
  make.extended(1, 1, 2),
];
/** In step 3 r1 needs a block, and there are only four. */
const three = [
  step(3),
  make.preempted(2, 1),
  allocated(1, 3),
  scheduled([[1, 6, 1]], { blocked: [2, "after_preemption", 0, 0, 0] }),
  finished([[1, "h"]]),
];
const small = started({ num_blocks: 4 });
/** A step of one decode in which `blocked` is the head of the queue. */
const wait = (number, blocked, alone = false) => [
  step(number),
  scheduled(alone ? [] : [[1, 3 + number, 1]], { blocked }),
  finished(alone ? [] : [[1, "x"]]),
];

/** After step 2 r1 is gone and left node 1, blocks 0 and 1, in the cache. */
const gone = [wait(2), make.ended(1)];

const others = [1, 2, 3, 4];
const crowd = [
  ...others.map((id) => arrived(id, "ab")),
  arrived(5, "abcdefgh"),
  step(1),
  ...others.flatMap((id) => [admitted(id), allocated(id, id - 1)]),
  admitted(5),
  allocated(5, 4, 5, 6, 7, 8),
  scheduled([...others.map((id) => [id, 0, 2]), [5, 0, 8]]),
  finished([...others, 5].map((id) => [id, "x"])),
  step(2),
  make.preempted(5, 1),
  ...others.map((id) => allocated(id, 3 + id)),
  scheduled(
    others.map((id) => [id, 2, 1]),
    { blocked: [5, "after_preemption", 0, 0, 0] },
  ),
  finished(others.map((id) => [id, "y"])),
];
const itself = [step(3), make.preempted(1, 1), scheduled([[2, 5, 1]]), finished([[2, "z"]])];
const long = [
  arrived(2, "0123456789abcd"),
  step(3),
  admitted(2),
  allocated(2, 2, 3, 4, 5),
  scheduled([[2, 0, 8]]),
  finished(),
];
const gives = [
  step(4),
  make.preempted(2, 2),
  scheduled([], { blocked: [2, "after_preemption", 0, 0, 0] }),
];
const back = [
  step(4),
  admitted(2, 1, [0, 1], true),
  allocated(2, 4),
  scheduled([
    [1, 7, 1],
    [2, 4, 2],
  ]),
  finished([
    [1, "i"],
    [2, "z"],
  ]),
];
const big = [
  arrived(2, "0123456789"),
  step(3),
  admitted(2),
  make.evicted(1, 2),
  allocated(2, 0, 1, 2, 3, 4),
  scheduled([[2, 0, 10]]),
];
const fork = [
  arrived(1, "abc", { n: 3 }),
  step(1),
  admitted(1),
  allocated(1, 0, 1),
  scheduled([[1, 0, 3]]),
  make.forked(2, 1, 1),
  make.forked(3, 1, 2),
  finished([
    [1, "x"],
    [2, "y"],
    [3, "z"],
  ]),
];
/** A fork's sibling joins the very blocks it shares already. */
const siblings = [
  arrived(1, "abcd", { n: 2 }),
  step(1),
  admitted(1),
  allocated(1, 0, 1),
  scheduled([[1, 0, 4]]),
  make.forked(2, 1, 1),
  finished([
    [1, "x"],
    [2, "y"],
  ]),
  inserted(1, 1, 0, 0, 1),
  make.joined(2, 1, 0, 1),
];
const writes = scheduled([
  [1, 3, 1],
  [2, 3, 1],
  [3, 3, 1],
]);
const cut = [step(1), admitted(1), allocated(1, 0), scheduled([[1, 0, 2]]), finished()];
const drafts = (accepted) => [
  step(2),
  allocated(1, 3),
  scheduled([[1, 5, 3, [7, 8]]]),
  finished([[1, "ghi".slice(0, accepted + 1), accepted]]),
];
const twin = [arrived(2, "abcde"), step(2), admitted(2), allocated(2, 3, 4, 5)];
const same = [scheduled([[2, 0, 5]]), finished([[2, "f"]])];
export const FAILURE =
  "RuntimeError: the device is on fire and cannot be reached by anybody at all";

/** A wait at the head of the queue: `blocked` is the log's. */
export function blockedBy(blocked, settings) {
  const queue = [2, 3, 4, 5, 6].slice(0, blocked[2] + 1).map((id) => arrived(id, "abcdx"));
  return { step: 2, model: modelOf(started(settings), one(), queue, wait(2, blocked)) };
}

/** Waiting requests that the policy defers. */
function putOff(ids, blocked) {
  const skipped = ids.map((id) => [id, "policy"]);
  const queue = [2, 3, 4, 5].map((id) => arrived(id, "abcdx"));
  const step_ = [step(2), scheduled([[1, 5, 1]], { skipped, blocked }), finished([[1, "g"]])];
  return scene(2, started(), one(), queue, step_);
}

/** r1 is gone: blocks 0 and 1 are cached, four are free. */
function cached(need, have) {
  const blocked = [2, "no_free_blocks", 0, need, have];
  return scene(3, started(), one(), gone, arrived(2, "abcdx"), wait(3, blocked, true));
}

const scene = (number, ...events) => ({ step: number, model: modelOf(...events) });
const ended = (...events) => scene(2, started(), one({ max_tokens: 2 }), two(), ...events);
const label = "a very long name indeed";

export const scenes = {
  "a prompt": scene(1, started(), one()),
  "one token": scene(2, started(), one(), wait(2)),
  "a hit": scene(2, started(), one(), two({ label: "Ada" })),
  "a wait, then a hit": scene(
    4,
    started(),
    one(),
    arrived(2, "abcdx"),
    [2, 3].map((number) => wait(number, [2, "batch_full", 0, 1, 0])),
    two().slice(1).with(0, step(4)),
  ),
  "a wait for two reasons": scene(
    4,
    started(),
    one(),
    arrived(2, "abcdx"),
    wait(2, [2, "batch_full", 0, 1, 0]),
    wait(3, [2, "token_budget", 0, 1, 0]),
    two().slice(1).with(0, step(4)),
  ),
  "a preemption": scene(3, small, one(), two(), three),
  "a preemption that many live on": scene(
    2,
    started({ num_blocks: 9, max_batch_size: 5, token_budget: 16 }),
    crowd,
  ),
  "waiting behind a preemption": scene(
    3,
    small,
    one(),
    two(),
    [arrived(3, "x"), arrived(4, "y"), arrived(5, "z")],
    three,
  ),
  "preempting itself": scene(3, small, one(), two(), itself),
  "preempted although blocks can be evicted": scene(4, started(), one(), gone, long, gives),
  "a resume": scene(4, started({ num_blocks: 5 }), one(), two(), three, back),
  "an eviction": scene(3, started({ num_blocks: 5, token_budget: 16 }), one(), gone, big),
  "a cleared cache": scene(3, started(), one(), gone, make.evicted(1, -1, "cleared")),
  "an adopted prefix": scene(
    1,
    started({ num_blocks: 4 }),
    make.adopted(0, [1], [0, 1], "abcd"),
    make.evicted(1, -1, "adopted"),
    make.adopted(0, [2], [0, 1, 2], "abcdef"),
    arrived(1, "abcdefg"),
    step(1),
    admitted(1, 2, [0, 1, 2]),
    allocated(1, 3),
    scheduled([[1, 6, 1]]),
  ),
  "an abort": scene(2, started(), one(), arrived(2, "x"), arrived(3, "y"), make.ended(2, "abort")),
  "a fork": scene(1, started(), fork),
  "two copies": scene(
    2,
    started(),
    fork,
    step(2),
    make.copied(1, 1, 1, 2),
    make.copied(2, 1, 1, 3),
    writes,
  ),
  "a copy": scene(2, started(), fork, step(2), make.copied(1, 1, 1, 2), scheduled([[1, 3, 1]])),
  "a prompt that is cut": scene(1, started({ token_budget: 2 }), arrived(1, "abcde"), cut),
  "a request that gets nothing": scene(
    3,
    started(),
    one(),
    two(),
    step(3),
    scheduled([[1, 5, 1]], { skipped: [[2, "token_budget"]] }),
  ),
  "a failed draft pass": scene(2, started(), one(), [
    step(2),
    scheduled([[1, 5, 1]]),
    { ...finished([[1, "g"]]), draft_error: FAILURE },
  ]),
  "a draft accepted": scene(2, started(), one(), drafts(1)),
  "no draft accepted": scene(2, started(), one(), drafts(0)),
  "a forced token": scene(2, started(), one(), [
    step(2),
    scheduled([[1, 5, 1]]),
    finished([[1, "gh", 0, 1]]),
  ]),
  "two blocks computed twice": scene(2, started(), one(), twin, same, make.joined(2, 1, 0, 1)),
  "one block computed twice": scene(2, started(), one(), twin, same, make.joined(2, 1, 0)),
  "a sibling joins its own blocks": scene(1, started(), siblings),
  "an end at the limit": ended(make.ended(1)),
  "a stop": ended(make.ended(1, "stop")),
  "a stop and a limit": ended(make.ended(1, "stop"), make.ended(2)),
  "two limits": ended(make.ended(1), make.ended(2)),
  "a failed forward pass": scene(2, started(), one(), [
    step(2),
    scheduled([[1, 5, 1]]),
    make.ended(1, "error", FAILURE),
    finished(),
  ]),
  "a step given up": scene(
    2,
    started(),
    one(),
    step(2),
    finished(),
    wait(3, [2, "policy", 0, 0, 0]),
  ),
  "batch full": blockedBy([2, "batch_full", 0, 1, 0]),
  "batch full, four behind": blockedBy([2, "batch_full", 4, 1, 0]),
  "a batch of one is full": blockedBy([2, "batch_full", 0, 1, 0], { max_batch_size: 1 }),
  "too few seats": blockedBy([2, "batch_full", 0, 3, 1]),
  "budget spent": blockedBy([2, "token_budget", 1, 1, 0]),
  "budget too small": blockedBy([2, "token_budget", 0, 8, 7]),
  "too few free blocks": blockedBy([2, "no_free_blocks", 0, 4, 3]),
  "too few unreserved blocks": blockedBy([2, "reserved_blocks", 0, 4, 1]),
  "all blocks reserved": blockedBy([2, "reserved_blocks", 0, 4, -2]),
  "put off by the policy": blockedBy([2, "policy", 0, 0, 0]),
  "all put off": putOff([2, 3, 4, 5]),
  "one put off, one blocked": putOff([2], [3, "batch_full", 2, 1, 0]),
  "cached blocks can be evicted": cached(7, 6),
  "cached blocks are its own prefix": cached(5, 4),
  "one cached block is its own prefix": cached(6, 5),
  "a static batch": scene(
    2,
    started({ batching: "static", max_batch_size: 4, token_budget: 64 }),
    one(),
    arrived(5, "x"),
    wait(2, [5, "static_batch", 0, 0, 0]),
  ),
  "a crowd with long names": scene(
    3,
    small,
    one({ label }),
    two({ label }),
    Array.from({ length: 40 }, (_, id) => arrived(id + 3, "xy", { label })),
    three,
  ),
};
