/**
 * The module's two doors: anywidget's `render` for notebooks, and `mount` for pages.
 *
 * State lives in traits: `log` (bytes, plain or gzipped), `step` and `selected` (an id, or -1). Scrubbing
 * is done here alone; Python hears of it a few times a second, because a round trip takes some 50 ms.
 */

import { Board } from "./board.js";
import { h } from "./html.js";
import { textOf } from "./log_bytes.js";
import { LogError, Model, parseLog } from "./model/index.js";

const SYNC_EVERY = 200; // ms
const LONG = 1e6; // characters of log that take long enough to say what is going on

/**
 * Draws a log in `host` and returns the Board. `options`: log (bytes), step, selected, theme, signal,
 * onChange.
 */
export async function mount(
  host,
  { log, step, selected, theme, onChange, signal = new AbortController().signal },
) {
  const board = new Board(host, { signal, theme, onChange });
  await load(board, log, { step, selected });
  return board;
}

async function load(board, log, opening) {
  const bar = h("progress", { max: 1, value: 0 });
  const words = h("p", { class: "muted" }, "Unpacking the log");
  board.say("loading", words, bar);
  const now = (message) => {
    words.textContent = message;
    bar.removeAttribute("value");
    return nextFrame();
  };
  try {
    const text = await textOf(log, (share) => {
      bar.value = share;
      return share < 1 ? nextFrame() : undefined;
    });
    const long = text.length > LONG;
    if (long) await now(`Reading ${Math.round(text.length / 1e6)} MB of events`);
    const { events } = parseLog(text);
    if (long) await now(`Following ${events.length.toLocaleString("en")} events`);
    const model = new Model(events);
    if (model.stepCount === 0) sayEmpty(board);
    else board.open(model, opening);
  } catch (error) {
    sayWrong(board, error);
  }
}

function sayEmpty(board) {
  board.say(
    "empty",
    h("h2", {}, "Nothing has happened yet."),
    h(
      "p",
      {},
      "This log has no step in it. Give the engine something to do, then show the log again:",
    ),
    h(
      "pre",
      {},
      'engine.submit("Once upon a time")\nwhile engine.has_work():\n    engine.step()\nshow(engine.log)',
    ),
  );
}

function sayWrong(board, error) {
  if (!(error instanceof LogError)) {
    board.say("error", h("h2", {}, "The board cannot be drawn."), h("p", {}, String(error)));
    throw error;
  }
  const { line, seq } = error;
  const where = line != null ? `Line ${line} of the log` : `Event ${seq} of the log`;
  board.say(
    "error",
    h("h2", {}, `${where} cannot be used.`),
    h("p", {}, error.reason ?? error.message),
  );
}

/** Lets the page be painted before work goes on. */
function nextFrame() {
  return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
}

async function render({ model: traits, el, signal }) {
  const ending = signal ?? new AbortController().signal;
  const selectedTrait = () => (traits.get("selected") < 0 ? null : traits.get("selected"));
  let timer = null;
  const sync = ({ step, selected }) => {
    traits.set("step", step);
    traits.set("selected", selected ?? -1);
    timer ??= setTimeout(() => {
      timer = null;
      traits.save_changes();
      board.root.dataset.synced = `${traits.get("step")} ${traits.get("selected")}`;
    }, SYNC_EVERY);
  };
  const board = new Board(el, { signal: ending, onChange: sync });
  const reload = () =>
    load(board, traits.get("log"), { step: traits.get("step"), selected: selectedTrait() });
  const listen = (name, handler) => {
    traits.on(name, handler);
    ending.addEventListener("abort", () => traits.off(name, handler));
  };
  listen("change:log", reload);
  listen("change:step", () => board.model && board.goTo(traits.get("step")));
  listen("change:selected", () => board.model && board.select(selectedTrait()));
  await reload();
}

export default { render };
