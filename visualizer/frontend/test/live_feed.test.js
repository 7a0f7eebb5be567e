/** Server-sent events become messages, wherever the text is cut. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { feedParser, subscribe } from "../src/live/live_feed.ts";

const TEXT =
  'event: dropped\ndata: {"dropped": 7}\n\n' +
  'id: run:12\ndata: {"type":"keyframe","seq":12}\n\n' +
  'event: status\ndata: {"paused": true}\n\n' +
  ": keep-alive\n\n" +
  'id: run:13\ndata: {"type":"step_started","step":3}\n\n' +
  'id: run:14\ndata: {"type":"step_scheduled"}\n\n';

function heard(pieces) {
  const messages = [];
  const read = feedParser((message) => messages.push(message));
  pieces.forEach(read);
  return messages;
}

test("events of one piece are one numbered message, and a keyframe reports how many were dropped before it", () => {
  const events = { type: "events", run: "run" };
  assert.deepEqual(heard([TEXT]), [
    {
      ...events,
      first: 12,
      count: 1,
      text: '{"type":"keyframe","seq":12}\n',
      joins: true,
      dropped: 7,
    },
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

test("a stream that is cut anywhere gives the same lines with the same numbers", () => {
  const lines = (messages) =>
    messages
      .filter(({ type }) => type === "events")
      .flatMap(({ first, text }) =>
        text
          .trim()
          .split("\n")
          .map((line, i) => [first + i, line]),
      );
  const whole = lines(heard([TEXT]));
  for (let cut = 1; cut < TEXT.length; cut += 1) {
    assert.deepEqual(lines(heard([TEXT.slice(0, cut), TEXT.slice(cut)])), whole);
  }
  assert.deepEqual(lines(heard([...TEXT])), whole);
});

/** A page and a server that never ends its response; `connections` has the options of each request. */
function scene({ answers = true, past = false } = {}) {
  mock.timers.enable({ apis: ["setTimeout"] });
  const page = new EventTarget();
  page.hidden = false;
  const connections = [];
  globalThis.fetch = (url, { headers, signal }) =>
    new Promise((resolve, reject) => {
      const body = new ReadableStream({
        start(stream) {
          const line = 'id: run:7\ndata: {"type":"keyframe"}\n\n';
          stream.enqueue(new TextEncoder().encode(line));
          signal.addEventListener("abort", () => stream.error(new Error("left")));
        },
      });
      signal.addEventListener("abort", () => reject(new Error("left")));
      connections.push({ url, headers, signal });
      if (answers) resolve({ ok: true, status: 200, body });
    });
  const ending = new AbortController();
  const heard = [];
  const onMessage = ({ type }) => heard.push(type);
  const rejoin = subscribe("/events?model=m", { onMessage, past, signal: ending.signal, page });
  const show = (on) => {
    page.hidden = !on;
    page.dispatchEvent(new Event("visibilitychange"));
  };
  return { connections, heard, show, rejoin, ending };
}

const settled = async () => {
  for (let i = 0; i < 20; i += 1) await new Promise(setImmediate);
};

test("a hidden tab closes its connection, and continues from the last event when it is visible", async (t) => {
  t.after(() => mock.timers.reset());
  const { connections, heard, show, ending } = scene();
  await settled();
  show(false);
  mock.timers.tick(9000);
  show(true);
  mock.timers.tick(9000);
  await settled();
  assert.equal(connections.length, 1, "a short look at another tab changes nothing");
  show(false);
  mock.timers.tick(10_000);
  await settled();
  assert.ok(connections[0].signal.aborted);
  assert.equal(connections.length, 1);
  show(true);
  await settled();
  assert.equal(connections.length, 2);
  assert.equal(connections[1].headers["Last-Event-ID"], "run:7");
  assert.ok(!heard.includes("lost"));
  ending.abort();
});

test("the past is asked for once: neither when a tab is visible again, nor after a loss of events", async (t) => {
  t.after(() => mock.timers.reset());
  const { connections, show, rejoin, ending } = scene({ past: true });
  await settled();
  show(false);
  mock.timers.tick(10_000);
  await settled();
  show(true);
  await settled();
  rejoin();
  await settled();
  const urls = connections.map(({ url }) => url);
  assert.deepEqual(urls, ["/events?model=m&past=true", "/events?model=m", "/events?model=m"]);
  assert.equal(connections[2].headers["Last-Event-ID"], undefined);
  ending.abort();
});

test("the beginning of a run joins, as a keyframe does", () => {
  const [message] = heard(['id: run:0\ndata: {"type":"run_started","schema":2}\n\n']);
  assert.equal(message.joins, true);
});

test("a server that does not answer is reported as slow, once per attempt", async (t) => {
  t.after(() => mock.timers.reset());
  const { heard, ending } = scene({ answers: false });
  mock.timers.tick(4999);
  assert.deepEqual(heard, []);
  mock.timers.tick(1);
  assert.deepEqual(heard, ["slow"]);
  mock.timers.tick(10_000);
  assert.deepEqual(heard, ["slow"]);
  ending.abort();
});
