/** Messages are filled as in Python, whose texts are in a snapshot of `tests/engine/test_messages.py`. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { fill, text } from "../src/model/messages.ts";

const FILE = new URL("../../../tests/snapshots/messages.txt", import.meta.url);

test("every message reads as it does in Python", () => {
  const cases = readFileSync(FILE, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  assert.ok(cases.length > 20);
  for (const { message, values, text: expected } of cases)
    assert.equal(text(message, values), expected);
});

test("a request's name stays a span of its own", () => {
  assert.deepEqual(fill("{who} needs {need:seat}", { who: { text: "Eva", request: 5 }, need: 2 }), [
    { text: "Eva", request: 5 },
    { text: " needs 2 seats" },
  ]);
});
