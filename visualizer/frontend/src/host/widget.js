/**
 * The module's two doors: anywidget's `render` for notebooks, and `mount` for pages.
 *
 * In a notebook the panels of one log have one shared model behind them, see `notebook.js`; on a page they
 * are given a view to share.
 */

import { Board } from "../board/board.js";
import { comparisonInNotebook, drawComparison } from "../compare/compare.js";
import { h } from "../drawing/html.js";
import { predictionInNotebook } from "../predict/predict.js";
import { keepInAddress, readAddress, writeAddress } from "./address.js";
import { fromBase64 } from "./log_bytes.js";
import { LogReader } from "./log_reader.js";
import { inNotebook } from "./notebook.js";

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
  if (options.compare) {
    const { b, facts } = options.compare;
    return drawComparison(host, { ...options, logs: [log, fromBase64(b)], facts, load, signal });
  }
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

/**
 * Reads the log, once for all boards of a view, and opens it, or says what is wrong with it. Resolves when
 * all of it is read; a long one is shown before.
 */
export async function load(board, log, opening) {
  const { view, root } = board;
  const mine = (view.reading ??= new LogReader(log, () => view.reading === mine));
  const isCurrent = () => view.reading === mine && !board.signal.aborted;
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Loading" });
  board.showMessage("loading", h("p", { class: "muted" }, "Reading the log"), bar);
  const count = () => (root.dataset.loaded = Math.floor(mine.share * 100) / 100);
  await mine.until(opening, () => (bar.value = count()));
  if (!isCurrent()) return;
  const { model } = mine;
  if (model.stepCount === 0 || !model.settings.num_blocks) {
    if (mine.error) sayWrong(board, mine.error);
    else sayEmpty(board);
    return;
  }
  board.open(model, opening);
  await showRest(board, mine, isCurrent, count);
}

/** Shows what comes after the first picture: more of the log, or what is wrong with it. */
async function showRest(board, reading, isCurrent, count) {
  const { model } = reading;
  const note = h("p", { class: "note reading" });
  if (!reading.done) board.root.append(note);
  let drawn = model.events.length;
  await reading.follow(() => {
    if (!isCurrent()) return;
    const percent = Math.round(reading.share * 100);
    note.textContent = `${percent} % of the log is read, up to step ${model.lastStep}`;
    // Each time twice as much: a new layout costs more the more there is.
    if (reading.done || model.events.length >= 2 * drawn) {
      drawn = model.events.length;
      board.grow();
    }
    count();
  });
  count();
  note.remove();
  if (!isCurrent() || !reading.error) return;
  const { where, why } = wrong(reading.error);
  note.setAttribute("role", "alert");
  note.textContent = `${where} cannot be used: ${why}. What came before it is shown.`;
  board.grid.before(note);
  board.root.dataset.error = reading.error.line ?? "";
}

function sayEmpty(board) {
  board.showMessage(
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
  const { where, why } = wrong(error);
  board.showMessage("error", h("h2", {}, `${where} cannot be used.`), h("p", {}, why));
}

/** What is wrong, and in which line. */
function wrong({ line, reason, message }) {
  return { where: line ? `Line ${line} of the log` : "The log", why: reason ?? message };
}

const RENDERERS = {
  compare: comparisonInNotebook(load),
  predict: predictionInNotebook(load),
};
const board = inNotebook(load);

export default { render: (widget) => (RENDERERS[widget.model.get("kind")] ?? board)(widget) };
