/**
 * Draws a cluster log, or any other log, in a page. `mount` of `cluster.js` is this one; that of `board.js` reads logs of
 * one engine.
 *
 * @typedef {object} ClusterOptions
 * @property {ArrayBufferView} log
 * @property {number} [at]              the cursor (us)
 * @property {number | null} [selected] a request's id
 * @property {{b: string, names: [string, string]}} [compare]  another cluster log in base64, to compare with
 * @property {ThemeName} [theme]
 * @property {About} [about]
 * @property {boolean} [keys]           whether keys that nothing else takes go to this board; by default, they do
 * @property {AbortSignal} [signal]
 * @property {(state: {at: number, selected: number | null}) => void} [onChange]
 */

/** @import { About } from "../board/shell.js" */
/** @import { ThemeName } from "../board/theme.js" */
/** @import { ClusterOpening } from "./cluster_board.js" */
import { takeKeysOfPage } from "../board/keys.js";
import { h } from "../drawing/html.js";
import { fromBase64, piecesOf } from "../host/log_bytes.js";
import { mount } from "../host/widget.js";
import { LogError } from "../model/index.js";
import { ClusterBoard } from "./cluster_board.js";
import { isClusterLine } from "./cluster_lines.js";
import { ClusterModel } from "./cluster_model.js";
import { drawClusterComparison } from "./compare_clusters.js";

/** @param {HTMLElement} host @param {ClusterOptions} options */
export async function mountCluster(host, options) {
  const { log, signal = new AbortController().signal, theme, about, onChange } = options;
  if (options.compare) {
    const { b, names } = options.compare;
    return drawClusterComparison(host, { logs: [log, fromBase64(b)], names, theme, signal });
  }
  if (!(await isCluster(log))) return mount(host, { log, signal, theme, about });
  const board = new ClusterBoard(host, { signal, theme, about, onChange });
  if (options.keys ?? true) takeKeysOfPage(board.root, signal);
  await loadCluster(board, log, options);
  return board;
}

/** Whether the first line of a log is that of a cluster log. @param {ArrayBufferView} log */
async function isCluster(log) {
  try {
    for await (const { bytes } of piecesOf(log))
      return isClusterLine(new TextDecoder().decode(bytes.subarray(0, 200)));
  } catch {
    // The reader of the log says what is wrong with it.
  }
  return false;
}

/** Reads a log and opens it, or shows an error. @param {ClusterBoard} board @param {ArrayBufferView} log @param {ClusterOpening} opening */
export async function loadCluster(board, log, opening) {
  board.showMessage("loading", h("p", { class: "muted" }, "Reading the log"));
  const model = new ClusterModel();
  let error = null;
  try {
    for await (const { bytes } of piecesOf(log)) {
      model.read(bytes);
      await new Promise((resolve) => setTimeout(resolve));
      if (board.signal.aborted) return;
    }
    model.end();
  } catch (caught) {
    error = caught instanceof LogError ? caught : new Error(`it cannot be unpacked: ${caught}`);
  }
  const where =
    error instanceof LogError && error.line ? `Line ${error.line} of the log` : "The log";
  if (model.routes.length || model.replicas.some(({ hasSteps }) => hasSteps)) {
    board.open(model, opening);
    if (!error) return;
    const words = `${where} cannot be used: ${/** @type {LogError} */ (error).reason ?? error.message}. The board shows what came before it.`;
    board.root.prepend(h("p", { class: "note reading", role: "alert" }, words));
    board.root.dataset.error = `${/** @type {LogError} */ (error).line ?? ""}`;
  } else if (error)
    board.showMessage(
      "error",
      h("h2", {}, `${where} cannot be used.`),
      h("p", {}, /** @type {LogError} */ (error).reason ?? error.message),
    );
  else {
    const count = model.replicas.length;
    board.showMessage(
      "empty",
      h("h2", {}, "There is nothing to show yet."),
      h(
        "p",
        {},
        `${count} ${count === 1 ? "replica has" : "replicas have"} joined, and no request was routed.`,
      ),
    );
  }
}
