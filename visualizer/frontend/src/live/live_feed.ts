/**
 * GET /events in a browser: one connection, opened again from the last event received when it is lost.
 *
 * The feed is reported as messages:
 *
 *   {type: "events", run, first, count, text, joins, dropped}   lines of the log, numbered from `first`;
 *                      `joins`: the first is a keyframe or begins the run, after `dropped` events were missed.
 *                      A gateway sends the cluster's state as several lines, of which only the last has a number
 *   {type: "status", status}    the state of the server
 *   {type: "lost", seconds}     the connection is lost; the next attempt follows after this delay
 *   {type: "slow", seconds}     the server has not answered for this long
 *   {type: "refused", status}   the server requires a key
 *
 * A browser opens at most six connections to one server, for all of its tabs together. A hidden tab therefore
 * closes its connection and continues from the last event when it is shown again.
 */

import { createParser } from "eventsource-parser";

export { createParser };

import type { EventsMessage, FeedMessage } from "./live.ts";

const WAITS = [0.5, 1, 2, 4, 8, 15]; // s
const SILENCE = 40_000; // ms; an idle server sends a comment every 15 s
const SLOW = 5; // s without an answer before "slow" is reported
const BEGINNING = /^\{"type":"(keyframe|run_started|cluster_started)"/;
const UNSEEN = 10_000; // ms that a hidden tab keeps its connection

/**
 * Reads the feed until `signal` aborts. Returns `rejoin()`, which starts again with a keyframe. With `past`, the
 * first connection begins with the events that the server has kept.
 */
export function subscribe(
  url: string,
  {
    onMessage,
    headers = () => ({}),
    past = false,
    signal,
    page = globalThis.document,
    open = fetch,
  }: {
    onMessage: (message: FeedMessage) => void;
    headers?: () => Record<string, string>;
    past?: boolean;
    signal: AbortSignal;
    page?: Document;
    open?: (
      url: string,
      init: { headers: Record<string, string>; signal: AbortSignal; cache: "no-store" },
    ) => Promise<Response>; // instead of `fetch`
  },
) {
  const pastUrl = `${url}${url.includes("?") ? "&" : "?"}past=true`;
  let wantsPast = past;
  /** The id of the last event. */
  let last: string | null = null;
  let attempt = 0;
  let connection: AbortController | null = null;
  let startsOver = false;

  async function connect() {
    const here = new AbortController();
    connection = here;
    const silence: { timer: ReturnType<typeof setTimeout> | undefined } = { timer: undefined };
    const restartTimer = () => {
      clearTimeout(silence.timer);
      silence.timer = setTimeout(() => here.abort(), SILENCE);
    };
    restartTimer();
    const slow = setTimeout(() => onMessage({ type: "slow", seconds: SLOW }), SLOW * 1000);
    try {
      const response = await open(wantsPast && !last ? pastUrl : url, {
        headers: { ...headers(), ...(last && { "Last-Event-ID": last }) },
        signal: AbortSignal.any([signal, here.signal]),
        cache: "no-store",
      });
      clearTimeout(slow);
      if (response.status === 401) return "refused";
      if (!response.ok || !response.body) return "lost";
      const read = feedParser((message) => {
        attempt = 0;
        if (message.type === "events") last = `${message.run}:${message.first + message.count - 1}`;
        onMessage(message);
      });
      const bytes = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await bytes.read();
        if (done) return "lost";
        restartTimer();
        read(value);
      }
    } catch {
      return "lost";
    } finally {
      clearTimeout(silence.timer);
      clearTimeout(slow);
    }
  }

  let closing: ReturnType<typeof setTimeout> | undefined;
  const onVisibility = () => {
    clearTimeout(closing);
    if (page?.hidden) closing = setTimeout(() => connection?.abort(), UNSEEN);
  };
  page?.addEventListener("visibilitychange", onVisibility, { signal });
  onVisibility();
  signal.addEventListener("abort", () => clearTimeout(closing));

  (async () => {
    while (!signal.aborted) {
      const end = await connect();
      if (signal.aborted) return;
      if (startsOver) {
        startsOver = wantsPast = false; // the past may be more than the page can take
        last = null;
        continue;
      }
      if (end === "refused") {
        onMessage({ type: "refused", status: 401 });
        return;
      }
      if (page?.hidden) {
        await untilVisible(page, signal);
        attempt = 0;
        continue;
      }
      const seconds = WAITS[Math.min(attempt++, WAITS.length - 1)];
      onMessage({ type: "lost", seconds });
      await pause(seconds * 1000, signal);
    }
  })();
  return () => {
    startsOver = true;
    connection?.abort();
  };
}

/**
 * Returns a function that takes the text of the feed, cut anywhere, and reports its messages. The events of
 * one piece of text are reported together.
 */
export function feedParser(onMessage: (message: FeedMessage) => void) {
  let dropped = 0;
  let batch: EventsMessage | null = null;
  const flush = () => {
    if (!batch?.run) return; // the lines of a cluster's state go on
    onMessage(batch);
    batch = null;
  };
  const onEvent = ({ id, event, data }: { id?: string; event?: string; data: string }) => {
    if (event === "dropped") dropped = JSON.parse(data).dropped;
    else if (event === "status") {
      flush();
      onMessage({ type: "status", status: JSON.parse(data) });
    } else {
      const joins = BEGINNING.test(data);
      if (joins) flush();
      batch ??= { type: "events", run: "", first: 0, count: 0, text: "", joins, dropped };
      batch.text += `${data}\n`;
      dropped = 0;
      if (!id) return;
      const [run, number] = id.split(":");
      if (!batch.run) Object.assign(batch, { run, first: Number(number) });
      batch.count += 1;
    }
  };
  const parser = createParser({ onEvent });
  return (text: string) => {
    parser.feed(text);
    flush();
  };
}

/** Resolves when the page is visible again. */
function untilVisible(page: Document, signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    const options = { once: true, signal };
    page.addEventListener(
      "visibilitychange",
      () => resolve(page.hidden && untilVisible(page, signal)),
      options,
    );
    signal.addEventListener("abort", resolve, { once: true });
  });
}

/** @param time ms */
function pause(time: number, signal: AbortSignal) {
  return new Promise((resolve: (value?: unknown) => void) => {
    const timer = setTimeout(resolve, time);
    const stop = () => {
      clearTimeout(timer);
      resolve();
    };
    signal.addEventListener("abort", stop, { once: true });
  });
}
