/** The waterfall's words, orders and parts; its spans are compared with Python's in test_golden_reading.py. */

import assert from "node:assert/strict";
import test from "node:test";
import { partsOf } from "../src/drawing/waterfall_bar.ts";
import { Model, plain } from "../src/model/index.ts";
import { lateness } from "../src/model/run_summary.ts";
import { timeGroups } from "../src/model/time_groups.ts";
import {
  causeRows,
  headline,
  rowWords,
  share,
  totals,
  verdict,
} from "../src/model/waterfall_words.ts";
import { SORTINGS, sortTimes } from "../src/panels/waterfall_order.ts";
import {
  admitted,
  allocated,
  arrived,
  ended,
  finished,
  scheduled,
  started,
  step,
} from "./model/events.js";

const t = (start, end) => ({ start, scheduled: start, end });
const paused = (at) => ({ type: "engine_paused", t: { at } });
const resumed = (at) => ({ type: "engine_resumed", t: { at } });

/** Ada runs two steps; Bo waits for her seat in both, behind no one, and Cy behind Bo. */
const events = [
  started({ max_batch_size: 1 }),
  arrived(1, "ab", { label: "Ada", at: 0 }),
  arrived(2, "c", { label: "Bo", at: 0 }),
  arrived(3, "d", { label: "Cy", at: 5_000 }),
  step(1),
  admitted(1),
  allocated(1, 0),
  scheduled([[1, 0, 2]], { blocked: [2, "batch_full", 1, 1, 0] }),
  finished([[1, "x"]], t(0, 20_000)),
  paused(20_000),
  resumed(50_000),
  step(2),
  allocated(1, 1),
  scheduled([[1, 2, 1]], { blocked: [2, "batch_full", 1, 1, 0] }),
  finished([[1, "y"]], t(50_000, 60_000)),
  ended(1),
  step(3),
  admitted(2),
  allocated(2, 1),
  scheduled([[2, 0, 1]], { blocked: [3, "batch_full", 0, 1, 0] }),
  finished([[2, "z"]], t(60_000, 70_000)),
  ended(2),
];
const model = new Model(events);
const [ada, bo, cy] = model.waterfall.all();
const slo = { ttft: 30_000, itl: 15_000 };

test("a pause is outside the time to the first token and outside the times between tokens", () => {
  assert.deepEqual(ada.byCause, { prefill: 20_000, paused: 30_000, decode: 10_000 });
  assert.deepEqual([bo.firstToken, bo.ttft], [70_000, 40_000]);
  assert.deepEqual(lateness(model, ada, slo), { first: false, gaps: false });
  assert.deepEqual(lateness(model, bo, slo), { first: true, gaps: false });
  assert.deepEqual(lateness(model, ada, { ttft: 30_000, itl: 9_000 }), {
    first: false,
    gaps: true,
  });
});

test("a row per cause, and the rows add up to the total", () => {
  const rows = causeRows(cy, {});
  assert.deepEqual(
    rows.map(({ cause, isBehind, time, steps }) => [cause, isBehind, time, steps]),
    [
      ["batch_full", true, 15_000 + 10_000, [1, 2]],
      ["batch_full", false, 10_000, [3]],
      ["paused", false, 30_000, [2]],
    ],
  );
  assert.equal(
    rows.reduce((sum, { time }) => sum + time, 0),
    cy.total,
  );
  assert.match(plain(rowWords(model, cy, rows[0])), /Bo.*batch full/);
  assert.match(plain(headline(model, cy)), /^Cy.*65 ms.*0 ms/);
});

test("the verdict counts the requests outside the limits and names those with long gaps", () => {
  const times = [ada, bo, cy];
  assert.match(plain(verdict(model, times, slo)), /^3 requests, 1 outside/);
  assert.match(plain(verdict(model, times, { ttft: 1e6, itl: 9_000 })), /1 outside.*Ada/);
  assert.match(plain(verdict(model, times, { ttft: 1e6, itl: 1e6 })), /within.*paused/);
});

test("orders: slowest, arrival, time lost, first token; a request without a token comes first", () => {
  const ids = (order) =>
    sortTimes([ada, bo, cy], order, model.waterfall).map(({ request }) => request.id);
  assert.deepEqual(ids("slowest"), [2, 3, 1]);
  assert.deepEqual(ids("arrival"), [1, 2, 3]);
  assert.deepEqual(ids("first"), [3, 2, 1]);
  assert.equal(Object.keys(SORTINGS).length, 4);
});

test("totals are in the order of the key and add up to all times", () => {
  const sums = totals([ada, bo, cy]);
  assert.deepEqual(Object.keys(sums), ["batch_full", "prefill", "decode", "paused"]);
  const all = Object.values(sums).reduce((sum, one) => sum + one, 0);
  assert.equal(all, ada.total + bo.total + cy.total);
  assert.equal(share(1, 1000), "< 1 %");
  assert.equal(share(30, 100), "30 %");
});

test("a bar joins neighbours with one cause, and slivers between passes with what comes before", () => {
  const span = (start, end, cause, about = null) => ({ start, end, cause, about, step: 1 });
  const spans = [
    span(0, 100, "decode"),
    span(100, 101, "between_passes"),
    span(101, 200, "decode"),
    span(200, 300, "batch_full", 1),
    span(300, 400, "batch_full", 2),
    span(400, 500, "between_passes"),
  ];
  const parts = partsOf(spans, (time) => time / 10);
  assert.deepEqual(
    parts.map(({ cause, from, to }) => [cause, from, to]),
    [
      ["decode", 0, 20],
      ["batch_full", 20, 30],
      ["batch_full", 30, 40],
      ["between_passes", 40, 50],
    ],
  );
});

test("groups of requests are told by real ones at the median and at the 99th percentile", () => {
  const times = Array.from({ length: 200 }, (_, at) => ({
    request: { label: at % 2 ? `chat-${at}` : "summary" },
    total: at % 2 ? at : 1000 + at,
  })).sort((one, other) => other.total - one.total);
  const [summary, chat, ...more] = timeGroups(times);
  assert.deepEqual([summary.name, chat.name, more.length], ["summary", "chat", 0]);
  const told = ({ told }) => told.map(({ name, time }) => [name, time.total]);
  assert.deepEqual(told(summary), [
    ["p50", 1098],
    ["p99", 1196],
  ]);
  assert.deepEqual(told(chat), [
    ["p50", 99],
    ["p99", 197],
  ]);
  assert.ok(chat.told.every(({ time }) => times.includes(time)));
  const names = times.map((time, at) => ({
    ...time,
    request: { label: `${(at % 26).toString(36)} name` },
  }));
  assert.deepEqual(
    timeGroups(names).map(({ name, times }) => [name, times.length]),
    [["all", 200]],
  );
});
