/**
 * Draws a cluster log, or any other log, in a page. `mount` of `cluster.js` is this one; that of `board.js` reads logs of
 * one engine.
 */

import { takeKeysOfPage } from "../board/keys.ts";
import type { About } from "../board/shell.ts";
import { h } from "../drawing/html.ts";
import { bytesOf, headOf } from "../host/log_bytes.ts";
import { LogReader } from "../host/log_reader.ts";
import { endOfLog, mount, showError } from "../host/widget.ts";
import { tellFrom } from "../tour/open_tour.ts";
import { ClusterBoard, type ClusterBoardOptions, type ClusterOpening } from "./cluster_board.ts";
import { isClusterLine } from "./cluster_lines.ts";
import { ClusterModel } from "./cluster_model.ts";
import { joinedWords } from "./cluster_words.ts";
import { drawClusterComparison } from "./compare_clusters.ts";

interface ClusterOptions extends Partial<ClusterBoardOptions>, ClusterOpening {
  log: ArrayBufferView;
  compare?: { b: string | ArrayBufferView; names: [string, string] }; // another cluster log
  about?: About;
  telling?: boolean; // whether the page opens with the tour
  tour?: string; // where the page asks for the tour
  keys?: boolean; // whether keys that nothing else takes go to this board; by default, they do
}

export async function mountCluster(
  host: HTMLElement,
  {
    signal = new AbortController().signal,
    log,
    compare,
    telling,
    tour,
    keys = true,
    ...options
  }: ClusterOptions,
) {
  const { theme, about } = options;
  if (compare) {
    const { b, names } = compare;
    return drawClusterComparison(host, [log, bytesOf(b)], { names, theme, signal });
  }
  if (!isClusterLine(await headOf(log))) return mount(host, { log, signal, theme, about });
  const tell = tour ? tellFrom(tour) : undefined;
  const board = new ClusterBoard(host, { tell, ...options, signal });
  if (keys) takeKeysOfPage(board.root, signal);
  await loadCluster(board, log, options);
  if (telling && board.model) await board.tellMe();
  return board;
}

/** Reads a log and opens it, or shows an error. */
export async function loadCluster(
  board: ClusterBoard,
  log: ArrayBufferView,
  opening: ClusterOpening,
) {
  board.showMessage("loading", h("p.muted", "Reading the log"));
  const model = new ClusterModel();
  const reader = new LogReader(log, () => !board.signal.aborted, model);
  await reader.follow(() => {});
  const { error } = reader;
  if (board.signal.aborted) return;
  if (model.routes.length || model.replicas.some(({ hasSteps }) => hasSteps)) {
    board.open(model, opening);
    if (error) board.root.prepend(endOfLog(board, error));
  } else if (error) showError(board, error);
  else {
    const words = `${joinedWords(model)}, and no request was routed.`;
    board.showMessage("empty", h("h2", "There is nothing to show yet."), h("p", words));
  }
}
