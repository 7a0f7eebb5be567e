import assert from "node:assert/strict";
import { test } from "node:test";
import { Numbers } from "../../src/model/columns.ts";

const LENGTH = 10_000; // of three pages, the last one incomplete

/** Numbers of each kind that pages store in another way. */
const KINDS = {
  equal: () => 7,
  few: (i) => i % 200,
  negative: (i) => (i % 300) - 150,
  times: (i) => 1e12 + 25_000 * i,
  large: (i) => (i % 2) * 2 ** 40,
  fractions: (i) => i / 8,
  unknown: () => NaN,
  gaps: (i) => (i % 1000 ? i : NaN),
};

for (const [kind, numberAt] of Object.entries(KINDS))
  test(`a column reads what was written: ${kind}`, () => {
    const values = Array.from({ length: LENGTH }, (_, i) => numberAt(i));
    const [single, several] = [new Numbers(), new Numbers()];
    values.forEach((value, i) => single.set(i, value));
    for (let at = 0; at < LENGTH; at += 1927) several.put(at, values.slice(at, at + 1927));
    assert.deepEqual([...single], values);
    assert.deepEqual([...several], values);
    const [before, at] = [values.slice(), 4095];
    for (const i of [at, at + 1, 12]) {
      single.set(i, i - 0.5);
      before[i] = i - 0.5;
    }
    assert.deepEqual([...single], before);
  });

test("what was not set is empty, and what is outside is no number", () => {
  const column = new Numbers(NaN);
  column.set(9000, 1);
  assert.ok([0, 5000, 8999, 9001, -1, 100_000].every((at) => Number.isNaN(column.at(at))));
  assert.equal(column.at(9000), 1);
  assert.equal(new Numbers().at(0), NaN);
  const counts = new Numbers();
  counts.set(9000, 1);
  assert.deepEqual([counts.at(0), counts.at(5000), counts.at(8999)], [0, 0, 0]);
});
