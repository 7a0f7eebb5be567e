/** Server-sent events to messages, however the text is cut. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { reader } from "../src/live_feed.js";

const TEXT =
  'event: dropped\ndata: {"dropped": 7}\n\n' +
  'id: run:12\ndata: {"type":"keyframe","seq":12}\n\n' +
  'event: status\ndata: {"paused": true}\n\n' +
  ": keep-alive\n\n" +
  'id: run:13\ndata: {"type":"step_started","step":3}\n\n' +
  'id: run:14\ndata: {"type":"step_scheduled"}\n\n';

function heard(pieces) {
  const messages = [];
  const read = reader((message) => messages.push(message));
  pieces.forEach(read);
  return messages;
}

test("events of one piece come together, numbered, and a keyframe says what was missed before it", () => {
  const events = { type: "events", run: "run" };
  assert.deepEqual(heard([TEXT]), [
    { ...events, first: 12, count: 1, text: '{"type":"keyframe","seq":12}\n', joins: true, dropped: 7 },
    { type: "status", status: { paused: true } },
    {
      ...events,
      first: 13,
      count: 2,
      text: '{"type":"step_started","step":3}\n{"type":"step_scheduled"}\n',
      joins: false,
      dropped: 0,
    },
  ]);
});

test("wherever the stream is cut, the same lines come with the same numbers", () => {
  const lines = (messages) =>
    messages
      .filter(({ type }) => type === "events")
      .flatMap(({ first, text }) => text.trim().split("\n").map((line, i) => [first + i, line]));
  const whole = lines(heard([TEXT]));
  for (let cut = 1; cut < TEXT.length; cut += 1) {
    assert.deepEqual(lines(heard([TEXT.slice(0, cut), TEXT.slice(cut)])), whole);
  }
  assert.deepEqual(lines(heard([...TEXT])), whole);
});
