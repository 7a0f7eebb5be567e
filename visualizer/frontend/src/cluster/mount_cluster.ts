/**
 * Draws a cluster log, or any other log, in a page. `mount` of `cluster.js` is this one; that of `board.js` reads logs of
 * one engine.
 */

import { takeKeysOfPage } from "../board/keys.ts";
import { seatBehind } from "../board/seat.ts";
import type { About } from "../board/shell.ts";
import { h } from "../drawing/html.ts";
import { ChunkStream, IndexReader, isIndex, rangesAt, rangesOf } from "../host/index_reader.ts";
import { bytesOf, headOf } from "../host/log_bytes.ts";
import { LogReader, type LogSource, SHORT } from "../host/log_reader.ts";
import { endOfLog, mount, showError } from "../host/widget.ts";
import { tellFrom } from "../tour/open_tour.ts";
import type { Scene } from "../tour/scenes.ts";
import { ClusterBoard, type ClusterBoardOptions, type ClusterOpening } from "./cluster_board.ts";
import { isClusterLine } from "./cluster_lines.ts";
import { ClusterModel } from "./cluster_model.ts";
import { joinedWords } from "./cluster_words.ts";
import { drawClusterComparison } from "./compare_clusters.ts";

/** How many times as much is read until a long log is drawn again: a layout of a longer log costs more. */
const GROWTH = 4;

interface ClusterOptions extends Partial<ClusterBoardOptions>, ClusterOpening {
  log: ArrayBufferView;
  from?: string; // where a server answers for ranges of an indexed log, in place of its bytes
  stream?: string; // where it sends the index that it is writing
  compare?: { b: string | ArrayBufferView; names: [string, string]; scenes: Scene[] }; // another cluster log
  about?: About;
  telling?: boolean; // whether the page opens with the tour
  tour?: string; // where the page asks for the tour
  decide?: string; // the server runs a replica's log again at this route
  keys?: boolean; // whether keys that nothing else takes go to this board; by default, they do
}

export async function mountCluster(
  host: HTMLElement,
  {
    signal = new AbortController().signal,
    log,
    from,
    stream,
    compare,
    telling,
    tour,
    decide,
    keys = true,
    ...options
  }: ClusterOptions,
) {
  const { theme, about } = options;
  if (compare) {
    const { b, names, scenes } = compare;
    const logs = [log, bytesOf(b)];
    const page = await drawClusterComparison(host, logs, { names, scenes, theme, signal });
    if (telling) await page.tellMe();
    return page;
  }
  if (!from && !stream && !(await isCluster(log)))
    return mount(host, { log, signal, theme, about });
  const tell = tour ? tellFrom(tour) : undefined;
  const seatOf = (replica: string) => seatBehind(decide as string, undefined, undefined, replica);
  const board = new ClusterBoard(host, { tell, ...(decide && { seatOf }), ...options, signal });
  if (keys) takeKeysOfPage(board.root, signal);
  const source = stream ? new ChunkStream(stream) : from ? await rangesAt(from) : log;
  await loadCluster(board, source, options);
  if (source instanceof ChunkStream && source.options.run) board.showRun(source.options.run);
  if (telling && board.model) await board.tellMe();
  return board;
}

/** Whether a log is a cluster's. */
async function isCluster(log: ArrayBufferView) {
  if (!isIndex(log)) return isClusterLine(await headOf(log));
  const index = await IndexReader.open(rangesOf(log)).catch(() => null);
  return index?.isCluster ?? true; // its board says why it cannot be read
}

/** Reads a log and opens it, or shows an error. A long log is shown before all of it is read. */
export async function loadCluster(board: ClusterBoard, log: LogSource, opening: ClusterOpening) {
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Loading" });
  const note = h("p.note.reading");
  board.showMessage("loading", h("p.muted", "Reading the log"), bar);
  const model = new ClusterModel();
  const reader = new LogReader(log, () => !board.signal.aborted, model);
  let drawn = SHORT / GROWTH;
  await reader.follow(() => {
    bar.value = reader.share;
    const share = Math.floor(100 * reader.share);
    note.textContent = `${share} % of the log is read`;
    board.root.dataset.loaded = `${share / 100}`;
    if (reader.done || board.signal.aborted || model.lineCount < GROWTH * drawn) return;
    if (!board.model && !canBeDrawn(model)) return;
    drawn = model.lineCount;
    if (board.model) board.grow();
    else {
      board.open(model, opening);
      board.root.prepend(note);
    }
  });
  note.remove();
  const { error } = reader;
  if (board.signal.aborted) return;
  if (canBeDrawn(model)) {
    const { at, touched } = board.state;
    board.open(model, touched ? { at, selected: board.selected?.id ?? null } : opening);
    if (error) board.root.prepend(endOfLog(board, error));
  } else if (error) showError(board, error);
  else {
    const words = `${joinedWords(model)}, and no request was routed.`;
    board.showMessage("empty", h("h2", "There is nothing to show yet."), h("p", words));
  }
}

const canBeDrawn = ({ routes, replicas }: ClusterModel) =>
  routes.length > 0 || replicas.some(({ hasSteps }) => hasSteps);
