import assert from "node:assert/strict";
import test from "node:test";
import { LogError, parseLog } from "../../src/model/index.js";
import { assertNames } from "../facts.js";
import { admitted, arrived, started } from "./events.js";

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

test("one event a line", () => {
  const events = [started(), arrived(1, "abc")];
  assert.deepEqual(parseLog(lines(...events)).events, events);
});

test("an empty text is an empty log", () => assert.deepEqual(parseLog("").events, []));

test("a torn last line is dropped, wherever it was cut", () => {
  const whole = lines(started());
  const next = JSON.stringify(arrived(1, "a\u00e9"));
  for (let cut = 1; cut < next.length; cut++) {
    assert.equal(parseLog(whole + next.slice(0, cut)).events.length, 1, next.slice(0, cut));
  }
});

test("a bad line anywhere else is named", () => {
  refuses(`${lines(started())}{"type":\n${lines(arrived(1, "a"))}`, 2, "JSON");
  refuses(lines(started(), { type: "teleported" }), 2, "teleported");
  refuses(lines(started(), { type: "constructor" }), 2, "constructor");
  refuses(lines(started(), 5), 2);
});

test("a missing or wrong field is named", () => {
  const { request, ...nobody } = admitted(1);
  refuses(lines(started(), nobody), 2, "admitted", "request");
  refuses(lines(started(), { ...admitted(1), blocks: ["x"] }), 2, "admitted", "blocks");
});

test("what is left out where it has its default may be left out", () => {
  const event = { type: "step_scheduled", rows: [[1, 0, 2]], skipped: [] };
  assert.deepEqual(parseLog(lines(started(), event)).events[1], event);
});

test("another schema version says both", () => {
  refuses(lines({ ...started(), schema: 2 }), 1, 2, 1);
});

test("a text that is no log says so", () => {
  refuses(lines(arrived(1, "a")), 1, "run_started", "keyframe");
  refuses('{"cells": []}\n', 1, "run_started", "keyframe");
  refuses("hello\n", 1, "JSON");
});
