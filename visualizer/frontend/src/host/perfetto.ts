/**
 * Opens a trace in the Perfetto UI. The trace goes from this page to the other one in a message; nothing is uploaded.
 * The protocol: https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
 */

const UI = "https://ui.perfetto.dev";
const EVERY = 100; // ms between two attempts
const PATIENCE = 60_000; // ms for the UI to load

/**
 * Call it in a click, so that the browser lets it open a window. `trace()` returns the bytes of the trace. Throws an
 * Error that says what to do.
 */
export async function openInPerfetto(trace: () => Promise<Uint8Array>, title: string) {
  const ui = window.open(UI, "_blank");
  if (!ui) throw new Error("The browser did not open a window: allow pop-ups for this page.");
  const stop = new AbortController();
  try {
    const [bytes] = await Promise.all([trace(), isReady(ui, stop.signal)]);
    // A buffer of its own, because the message transfers all of it.
    ui.postMessage({ perfetto: { buffer: bytes.slice().buffer, title } }, UI);
  } catch (error) {
    ui.close();
    throw error;
  } finally {
    stop.abort();
  }
}

/** Resolves when the window answers a ping; stops asking when `signal` aborts. */
function isReady(ui: Window, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const late = new Error(
      `${UI} does not answer. Save a trace with to_perfetto(log, "trace.json").`,
    );
    const pings = setInterval(() => ui.postMessage("PING", UI), EVERY);
    const patience = setTimeout(() => reject(late), PATIENCE);
    const hear = ({ source, data }: MessageEvent) => source === ui && data === "PONG" && resolve();
    addEventListener("message", hear);
    signal.addEventListener("abort", () => {
      clearInterval(pings);
      clearTimeout(patience);
      removeEventListener("message", hear);
    });
  });
}
