import assert from "node:assert/strict";
import { test } from "node:test";
import { openInPerfetto } from "../src/host/perfetto.ts";

/** A window of the Perfetto UI that answers the third ping. */
function perfetto() {
  const listeners = new Set();
  globalThis.addEventListener = (_, listener) => listeners.add(listener);
  globalThis.removeEventListener = (_, listener) => listeners.delete(listener);
  const ui = { got: [], closed: false, close: () => (ui.closed = true) };
  let pings = 0;
  ui.postMessage = (message, origin) => {
    assert.equal(origin, "https://ui.perfetto.dev");
    if (message !== "PING") ui.got.push(message);
    else if (++pings === 3)
      for (const listener of [...listeners]) {
        listener({ source: {}, data: "PONG" }); // from another window: not the answer
        listener({ source: ui, data: "PONG" });
      }
  };
  return { ui, listeners };
}

test("the trace is sent once the window answers", async () => {
  const { ui, listeners } = perfetto();
  globalThis.window = { open: () => ui };
  const bytes = new Uint8Array([0, 1, 2, 3]).subarray(1, 3);
  await openInPerfetto(async () => bytes, "a run");
  assert.equal(ui.got.length, 1);
  const { buffer, title } = ui.got[0].perfetto;
  assert.deepEqual([...new Uint8Array(buffer)], [1, 2]);
  assert.equal(title, "a run");
  assert.equal(listeners.size, 0);
  assert.equal(ui.closed, false);
});

test("without a window or without a trace, an error says so", async () => {
  globalThis.window = { open: () => null };
  await assert.rejects(
    openInPerfetto(async () => new Uint8Array(), ""),
    /pop-ups/,
  );
  const { ui } = perfetto();
  globalThis.window = { open: () => ui };
  const broken = async () => {
    throw new Error("no kernel");
  };
  await assert.rejects(openInPerfetto(broken, ""), /no kernel/);
  assert.equal(ui.closed, true);
});
