/** The rows of the projector's view: one per person, in a place that does not change. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { newest, outputAt, peopleAt } from "../src/live/people.ts";
import { Model } from "../src/model/index.ts";
import { parseLog } from "./model/read.js";

const { events } = parseLog(readFileSync(new URL("./storytellers.jsonl", import.meta.url), "utf8"));
const model = new Model(events);

const span = (id, label, arrived, finished) => ({
  id,
  label,
  name: label || `r${id}`,
  arrived,
  finished: finished == null ? null : { step: finished },
});
const logOf = (...requests) => ({ requests, firstStep: 1 });
const seen = ({ rows }) => rows.map(({ name, spans }) => [name, ...spans.map(({ id }) => id)]);

test("a person's next request follows in the same row; one that overlaps has its own", () => {
  const log = logOf(
    span(1, "Ada", 1, 4),
    span(2, "Bo", 1, 9),
    span(3, "Ada", 6, 8),
    span(4, "Bo", 7, null),
    span(5, "Ada", 9, null),
  );
  assert.deepEqual(seen(peopleAt(log, 10, 9)), [
    ["Ada", 1, 3, 5],
    ["Bo", 2],
    ["Bo", 4],
  ]);
  assert.deepEqual(seen(peopleAt(log, 6, 9)), [
    ["Ada", 1, 3],
    ["Bo", 2],
  ]);
});

test("without names, each request has a row", () => {
  const log = logOf(span(1, "", 1, 2), span(2, "", 3, null));
  assert.deepEqual(seen(peopleAt(log, 5, 9)), [
    ["r1", 1],
    ["r2", 2],
  ]);
});

test("without room, live requests come first, then the latest; the order stays", () => {
  const log = logOf(
    span(1, "Ada", 1, 3),
    span(2, "Bo", 1, null),
    span(3, "Cy", 2, 8),
    span(4, "Dee", 4, null),
  );
  assert.deepEqual(seen(peopleAt(log, 9, 3)), [
    ["Bo", 2],
    ["Cy", 3],
    ["Dee", 4],
  ]);
  assert.equal(peopleAt(log, 9, 3).hidden, 1);
  assert.deepEqual(seen(peopleAt(log, 9, 2)), [
    ["Bo", 2],
    ["Dee", 4],
  ]);
});

test("in a real log, every request that has arrived is in one row", () => {
  for (let step = model.firstStep; step <= model.lastStep; step += 1) {
    const { rows } = peopleAt(model, step, 99);
    const shown = rows.flatMap(({ spans }) => spans.map(({ id }) => id));
    const arrived = model.requests.filter((one) => one.arrived <= step).map(({ id }) => id);
    assert.deepEqual(
      shown.toSorted((a, b) => a - b),
      arrived,
    );
    for (const row of rows) assert.equal(newest(row), row.spans.at(-1));
  }
});

test("the output at a step is what the steps until then have sampled", () => {
  for (const one of model.requests) {
    const all = one.texts.slice(one.promptLength);
    assert.equal(outputAt(one, model.lastStep), all.join(""));
    assert.equal(outputAt(one, one.arrived - 1), "");
    const [first] = one.tokenSteps;
    if (first) assert.ok(all.join("").startsWith(outputAt(one, first)) && outputAt(one, first));
  }
});
