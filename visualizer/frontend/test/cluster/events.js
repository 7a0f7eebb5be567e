/** Events of hand-made cluster logs, and a cluster whose second replica has evicted what the router expects. */

import { ClusterModel } from "../../src/cluster/cluster_model.ts";
import * as make from "../model/events.js";

export const started = (router = "test") => ({
  type: "cluster_started",
  schema: 1,
  router,
  options: {},
  t: { unix_us: 0 },
});
export const joined = (replica, offset = 0, at = 0) => ({
  type: "replica_joined",
  replica,
  t: { at, offset, rtt: 0 },
});
export const left = (replica, at) => ({ type: "replica_left", replica, why: "died", t: { at } });
export const of = (replica, seq, event) => ({ type: "of", replica, seq, event });
export const routed = (request, replica, at, more = {}) => ({
  type: "routed",
  request,
  label: "",
  replica,
  attempt: 1,
  reason: "longest_prefix",
  prompt: 5,
  hits: {},
  loads: {},
  scores: {},
  t: { at },
  ...more,
});
export const placed = (request, replica, its_request, at) => ({
  type: "placed",
  request,
  replica,
  its_request,
  t: { at },
});
export const lost = (request, replica, at) => ({
  type: "request_lost",
  request,
  replica,
  t: { at },
});
export const moved = (request, source, target, at) => ({
  type: "moved",
  request,
  source,
  target,
  tokens: 4,
  blocks: 2,
  bytes: 8,
  t: { at, us: 500 },
});

export const ejected = (replica, at) => ({
  type: "replica_ejected",
  replica,
  why: "silent",
  t: { at },
});
export const returned = (replica, at, half_open = false) => ({
  type: "replica_returned",
  replica,
  half_open,
  t: { at },
});
export const failed = (request, replica, at, more = {}) => ({
  type: "hop_failed",
  request,
  replica,
  hop: "first_token",
  noticed: "closed",
  remedy: "elsewhere",
  why: "reset",
  t: { at, us: 100 },
  ...more,
});

/** Events of a replica, numbered. */
export const run = (replica, ...events) => events.map((event, seq) => of(replica, seq, event));

export const bytesOf = (events) =>
  new TextEncoder().encode(events.map((event) => `${JSON.stringify(event)}\n`).join(""));

export function modelOf(...events) {
  const model = new ClusterModel();
  model.read(bytesOf(events.flat()));
  model.end();
  return model;
}

/** A step of one request on a replica that begins at `at`, takes 1 ms and gives one token. */
export function step(number, request, at, events, rows) {
  return [
    make.step(number),
    ...events,
    make.scheduled(rows),
    make.finished([[request, "x"]], { start: at, scheduled: at + 10, end: at + 1000 }),
  ];
}

/**
 * Two replicas of blocks of 2 tokens; the clock of "b" is 5 ms behind. Ann goes to b at 6 ms, computes "abcde", and ends.
 * At 8 ms her prefix is evicted. At 9 ms the router still expects 4 tokens of it and sends Ben there.
 */
export function twoReplicas() {
  const b = run(
    "b",
    make.started(),
    make.arrived(1, "abcde", { label: "Ann", at: 1000 }),
    ...step(1, 1, 1000, [make.admitted(1), make.allocated(1, 0, 1, 2)], [[1, 0, 5]]),
    make.inserted(1, 1, 0, 0, 1),
    { type: "request_finished", request: 1, reason: "length" },
    make.arrived(2, "zz", { label: "Zed", at: 2500 }),
    ...step(2, 2, 3000, [make.evicted(1, 2), make.admitted(2), make.allocated(2, 3)], [[2, 0, 2]]),
    make.arrived(3, "abcde", { label: "Ben", at: 4000 }),
    ...step(3, 3, 5000, [make.admitted(3), make.allocated(3, 0, 1, 2)], [[3, 0, 5]]),
  );
  return [
    started(),
    joined("a"),
    joined("b", 5000),
    ...run("a", make.started()),
    routed(1, "b", 6000, { label: "Ann", reason: "least_loaded", hits: { a: 0, b: 0 } }),
    placed(1, "b", 1, 6000),
    routed(2, "b", 7500, { label: "Zed", prompt: 2, reason: "least_loaded" }),
    placed(2, "b", 2, 7500),
    routed(3, "b", 9000, { label: "Ben", hits: { a: 0, b: 4 }, scores: { a: 3, b: 1.5 } }),
    placed(3, "b", 3, 9000),
    ...b,
  ];
}

/**
 * Replica "b" of `twoReplicas` with a second engine, whose clock is 20 ms behind and whose request 1 is Eve: it leaves at
 * 12 ms and joins again at 15 ms. "c" joins at 30 ms.
 */
export function twoRuns() {
  const second = run(
    "b",
    make.started(),
    make.arrived(1, "abcde", { label: "Eve", at: 1000 }),
    ...step(1, 1, 2000, [make.admitted(1), make.allocated(1, 0, 1, 2)], [[1, 0, 5]]),
  );
  return [
    ...twoReplicas(),
    left("b", 12_000),
    joined("b", 20_000, 15_000),
    second[0],
    routed(4, "b", 20_500, { label: "Eve" }),
    placed(4, "b", 1, 20_600),
    ...second.slice(1),
    joined("c", 0, 30_000),
    ...run("c", make.started()),
  ];
}
