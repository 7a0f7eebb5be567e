/**
 * Draws a cluster log, or any other log, in a page. `mount` of `cluster.js` is this one; that of `board.js` reads logs of
 * one engine.
 */

import { takeKeysOfPage } from "../board/keys.ts";
import type { About } from "../board/shell.ts";
import type { ThemeName } from "../board/theme.ts";
import { h } from "../drawing/html.ts";
import { fromBase64, piecesOf } from "../host/log_bytes.ts";
import { mount } from "../host/widget.ts";
import { LogError } from "../model/index.ts";
import { ClusterBoard, type ClusterOpening } from "./cluster_board.ts";
import { isClusterLine } from "./cluster_lines.ts";
import { ClusterModel } from "./cluster_model.ts";
import { drawClusterComparison } from "./compare_clusters.ts";

interface ClusterOptions {
  log: ArrayBufferView;
  at?: number; // the cursor (us)
  selected?: number | null; // a request's id
  compare?: { b: string; names: [string, string] }; // another cluster log in base64, to compare with
  theme?: ThemeName;
  about?: About;
  keys?: boolean; // whether keys that nothing else takes go to this board; by default, they do
  signal?: AbortSignal;
  onChange?: (state: { at: number; selected: number | null }) => void;
}

export async function mountCluster(host: HTMLElement, options: ClusterOptions) {
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

/** Whether the first line of a log is that of a cluster log. */
async function isCluster(log: ArrayBufferView) {
  try {
    for await (const { bytes } of piecesOf(log))
      return isClusterLine(new TextDecoder().decode(bytes.subarray(0, 200)));
  } catch {
    // The reader of the log says what is wrong with it.
  }
  return false;
}

/** Reads a log and opens it, or shows an error. */
export async function loadCluster(
  board: ClusterBoard,
  log: ArrayBufferView,
  opening: ClusterOpening,
) {
  board.showMessage("loading", h("p.muted", "Reading the log"));
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
    const words = `${where} cannot be used: ${(error as LogError).reason ?? error.message}. The board shows what came before it.`;
    board.root.prepend(h("p.note.reading", { role: "alert" }, words));
    board.root.dataset.error = `${(error as LogError).line ?? ""}`;
  } else if (error)
    board.showMessage(
      "error",
      h("h2", `${where} cannot be used.`),
      h("p", (error as LogError).reason ?? error.message),
    );
  else {
    const count = model.replicas.length;
    board.showMessage(
      "empty",
      h("h2", "There is nothing to show yet."),
      h(
        "p",
        `${count} ${count === 1 ? "replica has" : "replicas have"} joined, and no request was routed.`,
      ),
    );
  }
}
