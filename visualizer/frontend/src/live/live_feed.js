/**
 * GET /events in a browser: one connection, made again whenever it is lost, from the last event seen.
 *
 * What comes is told as messages, the same that a notebook's kernel sends (`visualizer/live.py`):
 *
 *   {type: "events", run, first, count, text, joins, dropped}   lines of the log, numbered from `first`;
 *                      `joins`: the first is a keyframe, after `dropped` events that were missed
 *   {type: "status", status}    what the server says about itself
 *   {type: "lost", seconds}     the connection is gone; it is tried again after so long
 *   {type: "slow", seconds}     no answer for so long, not even a refusal
 *   {type: "refused", status}   the server wants a key
 *
 * A browser opens six connections to one server, for all of its tabs. So a tab that nobody sees gives its own
 * back, and goes on from the last event when it is shown again.
 */

const WAITS = [0.5, 1, 2, 4, 8, 15]; // s
const SILENCE = 40_000; // ms; a server with nothing to say sends a comment every 15 s
const SLOW = 5; // s until it is said that there is no answer
const UNSEEN = 10_000; // ms that a hidden tab keeps its connection

/** Listens until `signal` aborts. Returns `rejoin()`, which begins again with a keyframe. */
export function listen(url, { hear, headers = () => ({}), signal, page = globalThis.document }) {
  let last = null; // id of the last event
  let attempt = 0;
  let connection = null;
  let anew = false;

  async function connect() {
    connection = new AbortController();
    const silence = { timer: null };
    const heard = () => {
      clearTimeout(silence.timer);
      silence.timer = setTimeout(() => connection.abort(), SILENCE);
    };
    heard();
    const slow = setTimeout(() => hear({ type: "slow", seconds: SLOW }), SLOW * 1000);
    try {
      const response = await fetch(url, {
        headers: { ...headers(), ...(last && { "Last-Event-ID": last }) },
        signal: AbortSignal.any([signal, connection.signal]),
        cache: "no-store",
      });
      clearTimeout(slow);
      if (response.status === 401) return "refused";
      if (!response.ok) return "lost";
      const read = reader((message) => {
        attempt = 0;
        if (message.type === "events") last = `${message.run}:${message.first + message.count - 1}`;
        hear(message);
      });
      const bytes = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await bytes.read();
        if (done) return "lost";
        heard();
        read(value);
      }
    } catch {
      return "lost";
    } finally {
      clearTimeout(silence.timer);
      clearTimeout(slow);
    }
  }

  let leaving = null;
  const seen = () => {
    clearTimeout(leaving);
    if (page?.hidden) leaving = setTimeout(() => connection?.abort(), UNSEEN);
  };
  page?.addEventListener("visibilitychange", seen, { signal });
  seen();
  signal.addEventListener("abort", () => clearTimeout(leaving));

  (async () => {
    while (!signal.aborted) {
      const end = await connect();
      if (signal.aborted) return;
      if (anew) {
        anew = false;
        last = null;
        continue;
      }
      if (end === "refused") {
        hear({ type: "refused", status: 401 });
        return;
      }
      if (page?.hidden) {
        await shown(page, signal);
        attempt = 0;
        continue;
      }
      const seconds = WAITS[Math.min(attempt++, WAITS.length - 1)];
      hear({ type: "lost", seconds });
      await pause(seconds * 1000, signal);
    }
  })();
  return () => {
    anew = true;
    connection?.abort();
  };
}

/** Takes the text of a stream of server-sent events, cut anywhere; tells whole events, those of a piece together. */
export function reader(tell) {
  let rest = "";
  let dropped = 0;
  return (piece) => {
    const blocks = (rest + piece).split("\n\n");
    rest = blocks.pop();
    let batch = null;
    const flush = () => {
      if (batch) tell(batch);
      batch = null;
    };
    for (const block of blocks) {
      const { id, event, data } = fields(block);
      if (data == null) continue;
      if (event === "dropped") dropped = JSON.parse(data).dropped;
      else if (event === "status") {
        flush();
        tell({ type: "status", status: JSON.parse(data) });
      } else if (id) {
        const [run, number] = id.split(":");
        const joins = data.startsWith('{"type":"keyframe"');
        if (joins) flush();
        batch ??= {
          type: "events",
          run,
          first: Number(number),
          count: 0,
          text: "",
          joins,
          dropped,
        };
        batch.count += 1;
        batch.text += `${data}\n`;
        dropped = 0;
      }
    }
    flush();
  };
}

function fields(block) {
  const found = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) found[line.slice(0, colon)] = line.slice(colon + 2);
  }
  return found;
}

/** Resolves when the page is seen again. */
function shown(page, signal) {
  return new Promise((resolve) => {
    const options = { once: true, signal };
    page.addEventListener(
      "visibilitychange",
      () => resolve(page.hidden && shown(page, signal)),
      options,
    );
    signal.addEventListener("abort", resolve, { once: true });
  });
}

function pause(time, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, time);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
