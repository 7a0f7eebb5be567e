/**
 * The module's two doors: anywidget's `render` for notebooks, and `mount` for pages.
 *
 * In a notebook the panels of one log have one shared model behind them, see `notebook.js`; on a page they
 * are given a view to share.
 */

import { keepInAddress, readAddress, writeAddress } from "./address.js";
import { Board } from "./board.js";
import { h } from "./html.js";
import { textOf } from "./log_bytes.js";
import { LogError, Model, parseLog } from "./model/index.js";
import { inNotebook } from "./notebook.js";

const LONG = 1e6; // characters of log that take long enough to say what is going on

let ownsAddress = false;

/**
 * Draws a log in `host` and returns the Board. `options`: log (bytes), step, selected, range, window, only
 * (one panel, the others a key away), panel (one that stands alone), view (shared with other boards of the
 * log), about (title and caption), address (does the page's address follow this board? else the first
 * one's), theme, signal, onChange.
 */
export async function mount(
  host,
  { log, address = !ownsAddress, onChange, signal = new AbortController().signal, ...options },
) {
  const here = location.href.replace(/#.*/, "");
  const board = new Board(host, {
    linkOf: address ? (state) => here + writeAddress(state) : undefined,
    ...options,
    signal,
    onChange(state) {
      onChange?.(state);
      follow?.();
    },
  });
  ownsAddress ||= address;
  const follow = address ? keepInAddress(board, signal) : null;
  await load(board, log, { ...options, ...(address && readAddress(location.hash)) });
  return board;
}

/** Reads the log, once for all boards of a view, and opens it, or says what is wrong with it. */
export async function load(board, log, opening) {
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Loading" });
  const words = h("p", { class: "muted" }, "Unpacking the log");
  board.say("loading", words, bar);
  const now = (message) => {
    words.textContent = message;
    bar.removeAttribute("value");
    return nextFrame();
  };
  const { view } = board;
  try {
    view.reading ??= read(log, now, (share) => {
      bar.value = share;
      return share < 1 ? nextFrame() : undefined;
    });
    const model = await view.reading;
    if (model.stepCount === 0) sayEmpty(board);
    else board.open(model, opening);
  } catch (error) {
    sayWrong(board, error);
  }
}

async function read(log, now, progress) {
  const text = await textOf(log, progress);
  const long = text.length > LONG;
  if (long) await now(`Reading ${Math.round(text.length / 1e6)} MB of events`);
  const { events } = parseLog(text);
  if (long) await now(`Following ${events.length.toLocaleString("en")} events`);
  return new Model(events);
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

export default { render: inNotebook(load) };
