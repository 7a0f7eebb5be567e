/**
 * The entry points of a board: anywidget's `render` for notebooks, and `mount` for pages.
 *
 * In a notebook the panels of one log share a widget model, see `notebook.js`; on a page they share the `view` that
 * they are given.
 */

import { Board } from "../board/board.js";
import { comparisonInNotebook, drawComparison } from "../compare/compare.js";
import { h } from "../drawing/html.js";
import { predictionInNotebook } from "../predict/predict.js";
import { forgetAddress, keepInAddress, readAddress, writeAddress } from "./address.js";
import { fromBase64 } from "./log_bytes.js";
import { LogReader } from "./log_reader.js";
import { inNotebook } from "./notebook.js";
import { acceptLogs } from "./open_log.js";

let ownsAddress = false;

/**
 * Draws a log in `host` and returns the Board. `options`: log (bytes), step, selected, range, window, only
 * (show one panel, the others on a key), panel (build one panel only), view (shared with other boards of the
 * log), about (title and caption), address (whether the page's address follows this board; by default, the
 * first board), theme, signal, onChange.
 */
export async function mount(
  host,
  { log, address = !ownsAddress, onChange, signal = new AbortController().signal, ...options },
) {
  const ends = new AbortController();
  signal.addEventListener("abort", () => ends.abort());
  // A page of one log shows any other that the reader opens.
  const replace = (bytes, name) => {
    ends.abort();
    document.title = name;
    forgetAddress();
    const about = { title: name };
    return mount(host, {
      log: bytes,
      about,
      address: true,
      theme: options.theme,
      signal,
      onChange,
    });
  };
  if (options.compare) {
    const { b, facts } = options.compare;
    return drawComparison(host, { ...options, logs: [log, fromBase64(b)], facts, load, signal });
  }
  const here = location.href.replace(/#.*/, "");
  const board = new Board(host, {
    linkOf: address ? (state) => here + writeAddress(state) : undefined,
    ...options,
    signal: ends.signal,
    onChange(state) {
      onChange?.(state);
      follow?.();
    },
  });
  ownsAddress ||= address;
  if (address) acceptLogs(host, replace, ends.signal);
  const follow = address ? keepInAddress(board, ends.signal) : null;
  await load(board, log, { ...options, ...(address && readAddress(location.hash)) });
  return board;
}

/**
 * Reads the log, once for all boards of a view, and opens it, or shows an error. Resolves when the whole log is
 * read; a long log is shown before that.
 */
export async function load(board, log, opening) {
  const { view, root } = board;
  const reader = (view.reading ??= new LogReader(log, () => view.reading === reader));
  const isCurrent = () => view.reading === reader && !board.signal.aborted;
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Loading" });
  board.showMessage("loading", h("p", { class: "muted" }, "Reading the log"), bar);
  const count = () => (root.dataset.loaded = Math.floor(reader.share * 100) / 100);
  await reader.until(opening, () => (bar.value = count()));
  if (!isCurrent()) return;
  const { model } = reader;
  if (model.stepCount === 0 || !model.settings.num_blocks) {
    if (reader.error) showError(board, reader.error);
    else showEmpty(board);
    return;
  }
  board.open(model, opening);
  await showRest(board, reader, isCurrent, count);
}

/** Shows the rest of the log as it is read, or the error in it. */
async function showRest(board, reading, isCurrent, count) {
  const { model } = reading;
  const note = h("p", { class: "note reading" });
  if (!reading.done) board.root.append(note);
  let drawn = model.events.length;
  let told = -1;
  await reading.follow(() => {
    if (!isCurrent()) return;
    const percent = Math.round(reading.share * 100);
    // Only when it changes, because the page is then laid out.
    if (percent !== told)
      note.textContent = `${percent} % of the log is read, up to step ${model.lastStep}`;
    told = percent;
    // Each time twice as much, because a layout of a longer log costs more.
    if (reading.done || model.events.length >= 2 * drawn) {
      drawn = model.events.length;
      board.grow();
    }
    count();
  });
  count();
  note.remove();
  if (!isCurrent() || !reading.error) return;
  const { where, why } = locate(reading.error);
  note.setAttribute("role", "alert");
  note.textContent = `${where} cannot be used: ${why}. The board shows what came before it.`;
  board.grid.before(note);
  board.root.dataset.error = reading.error.line ?? "";
}

function showEmpty(board) {
  board.showMessage(
    "empty",
    h("h2", {}, "There is nothing to show yet."),
    h("p", {}, "This log has no steps. Submit a request, run the engine, then show the log again:"),
    h(
      "pre",
      {},
      'engine.submit("Once upon a time")\nwhile engine.has_work():\n    engine.step()\nshow(engine.log)',
    ),
  );
}

function showError(board, error) {
  const { where, why } = locate(error);
  board.showMessage("error", h("h2", {}, `${where} cannot be used.`), h("p", {}, why));
}

/** The place and the reason of an error. */
function locate({ line, reason, message }) {
  return { where: line ? `Line ${line} of the log` : "The log", why: reason ?? message };
}

const RENDERERS = {
  compare: comparisonInNotebook(load),
  predict: predictionInNotebook(load),
};
const board = inNotebook(load);

export default { render: (widget) => (RENDERERS[widget.model.get("kind")] ?? board)(widget) };
