import { h } from "../drawing/html.js";
import { openInPerfetto } from "../host/perfetto.js";
import { traceOf } from "../host/trace.js";
import { momentsAround } from "../model/moments.js";

/** The actions of a board, one function per key and button. `names` are its panels, in the order of their digits. */
export function actionsOf(board, names) {
  const { store, view } = board;
  return {
    step: (delta) => board.goTo(store.step + delta),
    moment: (by) => goToMoment(board, by),
    first: () => board.goTo(board.model.firstStep),
    last: () => board.goTo(board.model.lastStep),
    toggle: () => view.play(!store.playing),
    faster: (by) => view.faster(by),
    neighbour: (delta) => selectNeighbour(board, delta),
    zoom: (factor) => board.axis?.zoom(factor),
    pan: (share) => board.axis?.pan(share),
    fit: () => board.axis?.fit(),
    axis: () => changeAxis(board),
    queue: () => board.toggleQueue(),
    pin: () => store.set({ pinned: store.pinned === store.selected ? null : store.selected }),
    rangeFrom: () => board.brush(store.step, Math.max(store.step, store.range?.[1] ?? store.step)),
    rangeTo: () => board.brush(Math.min(store.step, store.range?.[0] ?? store.step), store.step),
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

function selectNeighbour({ model, store, only, parts }, delta) {
  const inWaterfall = only === "waterfall";
  const ids = inWaterfall ? parts.waterfall.requests : model.requests.map(({ id }) => id);
  const at = ids.indexOf(store.selected);
  const next = at < 0 ? (delta > 0 ? 0 : ids.length - 1) : at + delta;
  if (next in ids) store.set({ selected: ids[next] });
}

/** Opens the run in the Perfetto UI, or says why that did not work. The host may have a better trace. */
async function showInPerfetto({ root, model, trace = async () => traceOf(model), about }) {
  root.querySelector(".no-trace")?.remove();
  try {
    await openInPerfetto(trace, about?.title ?? "Underglass");
  } catch ({ message }) {
    root.append(h("p", { class: "note no-trace", role: "alert" }, message));
  }
}

/** Goes to the next or the previous moment. */
function goToMoment(board, by) {
  const { previous, next } = momentsAround(board.model, board.store.step);
  const moment = by > 0 ? next : previous;
  if (moment) board.goTo(moment.step);
}

/** Switches between steps and wall time, if the timeline is shown. */
function changeAxis({ axis, store }) {
  if (axis) store.set({ axis: store.axis === "time" ? "steps" : "time" });
}

/** Closes the open box; if none is open, clears the range, the block or the selection, one per call. */
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
