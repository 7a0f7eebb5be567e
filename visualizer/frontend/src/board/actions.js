/** @import { Board, PanelName } from "./board.js" */
/** @typedef {ReturnType<typeof actionsOf>} Actions */

import { h } from "../drawing/html.js";
import { openInPerfetto } from "../host/perfetto.js";
import { traceOf } from "../host/trace.js";
import { momentsAround } from "../model/moments.js";

/**
 * The actions of a board, one function per key and button. `names` are its panels, in the order of their digits.
 *
 * @param {Board} board @param {PanelName[]} names
 */
export function actionsOf(board, names) {
  const { store, view } = board;
  return {
    /** @type {(delta: number) => void} */
    step: (delta) => board.goTo(store.step + delta),
    /** @type {(by: number) => void} */
    moment: (by) => goToMoment(board, by),
    first: () => board.goTo(board.model.firstStep),
    last: () => board.goTo(board.model.lastStep),
    toggle: () => view.play(!store.playing),
    /** @type {(by?: number) => void} */
    faster: (by) => view.faster(by),
    /** @type {(delta: number) => void} */
    neighbour: (delta) => selectNeighbour(board, delta),
    /** @type {(factor: number) => void} */
    zoom: (factor) => board.axis?.zoom(factor),
    /** @type {(share: number) => void} */
    pan: (share) => board.axis?.pan(share),
    fit: () => board.axis?.fit(),
    axis: () => changeAxis(board),
    queue: () => board.toggleQueue(),
    pin: () => store.set({ pinned: store.pinned === store.selected ? null : store.selected }),
    rangeFrom: () => board.brush(store.step, Math.max(store.step, store.range?.[1] ?? store.step)),
    rangeTo: () => board.brush(Math.min(store.step, store.range?.[0] ?? store.step), store.step),
    /** @type {(digit: number) => void} */
    only: (digit) => board.showOnly(names[digit - 1] ?? null),
    waterfall: () => board.showOnly(board.only === "waterfall" ? null : "waterfall"),
    search: () => board.search.open(),
    tables: () => board.toggleTables(),
    link: () => board.link.open(),
    postcard: () => board.postcard.open(),
    perfetto: () => showInPerfetto(board),
    help: () => board.toggleHelp(),
    escape: () => dismiss(board),
  };
}

/** @param {Board} board @param {number} delta */
function selectNeighbour({ model, store, only, parts }, delta) {
  const shown = only === "waterfall" && parts.waterfall;
  const ids = shown ? shown.requests : model.requests.map(({ id }) => id);
  const at = ids.indexOf(/** @type {number} */ (store.selected));
  const next = at < 0 ? (delta > 0 ? 0 : ids.length - 1) : at + delta;
  if (next in ids) store.set({ selected: ids[next] });
}

/**
 * Opens the run in the Perfetto UI, or says why that did not work. The host may have a better trace.
 *
 * @param {Pick<Board, "root" | "model" | "trace" | "about">} board
 */
async function showInPerfetto({ root, model, trace = async () => traceOf(model), about }) {
  root.querySelector(".no-trace")?.remove();
  try {
    await openInPerfetto(trace, about?.title ?? "Underglass");
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    root.append(h("p", { class: "note no-trace", role: "alert" }, message));
  }
}

/** Goes to the next or the previous moment. @param {Board} board @param {number} by */
function goToMoment(board, by) {
  const { previous, next } = momentsAround(board.model, board.store.step);
  const moment = by > 0 ? next : previous;
  if (moment) board.goTo(moment.step);
}

/** Switches between steps and wall time, if the timeline is shown. @param {Board} board */
function changeAxis({ axis, store }) {
  if (axis) store.set({ axis: store.axis === "time" ? "steps" : "time" });
}

/**
 * Closes the open box; if none is open, clears the range, the block or the selection, one per call.
 *
 * @param {Board} board
 */
function dismiss(board) {
  const { store } = board;
  if (!board.help.hidden) board.toggleHelp();
  else if (store.queue) board.toggleQueue();
  else if (!board.summary.box.hidden) board.summary.toggle();
  else if (board.link.isOpen) board.link.close();
  else if (board.postcard.isOpen) board.postcard.close();
  else if (board.search.isOpen) board.search.close();
  else if (store.range) board.brush(null);
  else if (store.block != null) board.lookAt(null);
  else board.select(null);
}
