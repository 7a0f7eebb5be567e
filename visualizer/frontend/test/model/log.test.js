import assert from "node:assert/strict";
import test from "node:test";
import { LogError } from "../../src/model/index.ts";
import { assertNames } from "../facts.js";
import { admitted, arrived, started } from "./events.js";
import { parseLog } from "./read.js";

const lines = (...events) => events.map((event) => `${JSON.stringify(event)}\n`).join("");
const refuses = (text, line, ...facts) =>
  assert.throws(
    () => parseLog(text),
    (error) => {
      assert.ok(error instanceof LogError);
      assertNames(error.message, line, ...facts);
      assert.equal(error.line, line);
      return true;
    },
  );

test("one event per line", () => {
  const events = [started(), arrived(1, "abc")];
  assert.deepEqual(parseLog(lines(...events)).events, events);
});

test("an empty text is an empty log", () => assert.deepEqual(parseLog("").events, []));

test("an incomplete last line is dropped, wherever it was cut", () => {
  const whole = lines(started());
  const next = JSON.stringify(arrived(1, "a\u00e9"));
  for (let cut = 1; cut < next.length; cut++) {
    assert.equal(parseLog(whole + next.slice(0, cut)).events.length, 1, next.slice(0, cut));
  }
});

test("an invalid line anywhere else is named", () => {
  refuses(`${lines(started())}{"type":\n${lines(arrived(1, "a"))}`, 2, "JSON");
  refuses(lines(started(), { type: "teleported" }), 2, "teleported");
  refuses(lines(started(), { type: "constructor" }), 2, "constructor");
  refuses(lines(started(), 5), 2);
});

test("a missing or wrong field is named", () => {
  const { request, ...withoutRequest } = admitted(1);
  refuses(lines(started(), withoutRequest), 2, "admitted", "request");
  refuses(lines(started(), { ...admitted(1), blocks: ["x"] }), 2, "admitted", "blocks");
});

test("fields with defaults may be omitted", () => {
  const event = { type: "step_scheduled", rows: [[1, 0, 2]], skipped: [] };
  assert.deepEqual(parseLog(lines(started(), event)).events[1], event);
});

test("an error about another schema version names both", () => {
  for (const schema of [1, 3]) refuses(lines({ ...started(), schema }), 1, schema, 2);
});

test("text that is not a log is rejected", () => {
  refuses(lines(arrived(1, "a")), 1, "run_started", "keyframe");
  refuses('{"cells": []}\n', 1, "run_started", "keyframe");
  refuses("hello\n", 1, "JSON");
});
