/**
 * The entry points of a board: anywidget's `render` for notebooks, and `mount` for pages.
 *
 * In a notebook the panels of one log share a widget model, see `notebook.js`; on a page they share the `view` that
 * they are given.
 *
 * @typedef {object} MountOptions  the others are those of a board and of what it shows first
 * @property {ArrayBufferView} log  the bytes
 * @property {boolean} [address]  whether the page's address follows this board; by default, the first board's does
 * @property {AbortSignal} [signal]
 * @property {{b: string, facts: Facts}} [compare]  another log in base64, and the kernel's comparison
 * @property {string} [translate]  where to send a log that the reader opens; the server returns it in our form
 * @property {string} [refusal]    why there is no log
 */

/** @import { BoardOptions } from "../board/board.js" */
/** @import { Opening } from "../board/view.js" */
/** @import { ComparisonPage, Facts } from "../compare/compare.js" */
/** @import { Widget } from "./notebook.js" */
import { Board } from "../board/board.js";
import { takeKeysOfPage } from "../board/keys.js";
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
 * Draws a log in `host` and returns the Board, or two logs and returns the page.
 *
 * @param {HTMLElement} host
 * @param {MountOptions & Opening & Omit<BoardOptions, "signal">} options
 * @returns {Promise<Board | ComparisonPage>}
 */
export async function mount(
  host,
  {
    log,
    address = !ownsAddress,
    onChange,
    signal = new AbortController().signal,
    translate,
    refusal,
    ...options
  },
) {
  const ends = new AbortController();
  signal.addEventListener("abort", () => ends.abort());
  // A page of one log shows any other that the reader opens.
  let latest = 0; // the last of several that are dropped while one is translated
  /** @param {Uint8Array} bytes @param {string} name */
  const replace = async (bytes, name) => {
    latest += 1;
    const own = latest;
    const sent = translate ? await send(translate, bytes) : { log: bytes };
    if (own !== latest) return;
    ends.abort();
    document.title = name;
    forgetAddress();
    const about = { title: name };
    return mount(host, {
      ...sent,
      translate,
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
  if (address) {
    acceptLogs(host, replace, ends.signal);
    takeKeysOfPage(board.root, ends.signal);
  }
  const follow = address ? keepInAddress(board, ends.signal) : null;
  if (refusal) showError(board, new Error(refusal));
  else await load(board, log, { ...options, ...(address && readAddress(location.hash)) });
  return board;
}

/** Sends a file to be translated. @param {string} url @param {Uint8Array} body */
async function send(url, body) {
  try {
    const answer = await fetch(url, { method: "POST", body: /** @type {BodyInit} */ (body) });
    const log = new Uint8Array(await answer.arrayBuffer());
    return answer.ok ? { log } : { log, refusal: new TextDecoder().decode(log) };
  } catch {
    return { log: body, refusal: "underglass open has ended. Start it again to open this file." };
  }
}

/**
 * Reads the log, once for all boards of a view, and opens it, or shows an error. Resolves when the whole log is
 * read; a long log is shown before that.
 *
 * @param {Board} board @param {ArrayBufferView} log @param {Opening} opening
 */
export async function load(board, log, opening) {
  const { view, root } = board;
  /** @type {LogReader} */
  const reader = (view.reading ??= new LogReader(log, () => view.reading === reader));
  const isCurrent = () => view.reading === reader && !board.signal.aborted;
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Loading" });
  board.showMessage("loading", h("p", { class: "muted" }, "Reading the log"), bar);
  const count = () => {
    const share = Math.floor(reader.share * 100) / 100;
    root.dataset.loaded = `${share}`;
    return share;
  };
  await reader.until(opening, () => (bar.value = count()));
  if (!isCurrent()) return;
  const { model } = reader;
  if (model.stepCount === 0 || model.settings.num_blocks === undefined) {
    if (reader.error) showError(board, reader.error);
    else showEmpty(board);
    return;
  }
  board.open(model, opening);
  await showRest(board, reader, isCurrent, count);
}

/**
 * Shows the rest of the log as it is read, or the error in it.
 *
 * @param {Board} board @param {LogReader} reading @param {() => boolean} isCurrent @param {() => void} count
 */
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
  board.root.dataset.error = `${reading.error.line ?? ""}`;
}

/** @param {Board} board */
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

/** @param {Board} board @param {NonNullable<LogReader["error"]>} error */
function showError(board, error) {
  const { where, why } = locate(error);
  board.showMessage("error", h("h2", {}, `${where} cannot be used.`), h("p", {}, why));
}

/** The place and the reason of an error. @param {NonNullable<LogReader["error"]>} error */
function locate({ line, reason, message }) {
  if (line === 1) reason += ". To open the log of another engine, run: underglass open FILE";
  return { where: line ? `Line ${line} of the log` : "The log", why: reason ?? message };
}

/** @type {Record<string, (widget: Widget) => Promise<void>>} */
const RENDERERS = {
  compare: comparisonInNotebook(load),
  predict: predictionInNotebook(load),
};
const board = inNotebook(load);

export default {
  /** @param {Widget} widget */
  render: (widget) => (RENDERERS[widget.model.get("kind")] ?? board)(widget),
};
