import { h } from "../drawing/html.ts";
import { openInPerfetto } from "../host/perfetto.ts";
import { traceOf } from "../host/trace.ts";
import { momentsAround } from "../model/moments.ts";
import { LEVELS } from "../model/sentence.ts";
import type { Board, PanelName } from "./board.ts";
import { showHelp, takeSeat } from "./seat.ts";

export type Actions = ReturnType<typeof actionsOf>;

/** The actions of a board, one function per key and button. `names` are its panels, in the order of their digits. */
export function actionsOf(board: Board, names: PanelName[]) {
  const { store, view } = board;
  return {
    step: (by: number) => board.goTo(store.step + by),
    moment: (by: number) => goToMoment(board, by),
    first: () => board.goTo(board.model.firstStep),
    last: () => board.goTo(board.model.lastStep),
    toggle: () => view.play(!store.playing),
    faster: (by?: number) => view.faster(by),
    neighbour: (by: number) => selectNeighbour(board, by),
    zoom: (factor: number) => board.axis?.zoom(factor),
    pan: (share: number) => board.axis?.pan(share),
    fit: () => board.axis?.fit(),
    axis: () => changeAxis(board),
    queue: () => board.toggleQueue(),
    pin: () => store.set({ pinned: store.pinned === store.selected ? null : store.selected }),
    rangeFrom: () => board.brush(store.step, Math.max(store.step, store.range?.[1] ?? store.step)),
    rangeTo: () => board.brush(Math.min(store.step, store.range?.[0] ?? store.step), store.step),
    only: (digit: number) => board.showOnly(names[digit - 1] ?? null),
    waterfall: () => board.showOnly(board.only === "waterfall" ? null : "waterfall"),
    level: (by: number) => showMore(board, by),
    search: () => board.search.open(),
    result: (by: number) => board.search.go(by),
    tables: () => board.toggleTables(),
    link: () => board.link.open(),
    postcard: () => void openPostcard(board),
    perfetto: () => showInPerfetto(board),
    seat: () => takeSeat(board),
    helped: () => showHelp(board),
    tell: () => void board.tellMe(),
    help: () => board.toggleHelp(),
    escape: () => dismiss(board),
  };
}

function selectNeighbour({ model, store, only, parts }: Board, delta: number) {
  const shown = only === "waterfall" && parts.waterfall;
  const ids = shown ? shown.requests : model.requests.map(({ id }) => id);
  const at = ids.indexOf(store.selected as number);
  const next = at < 0 ? (delta > 0 ? 0 : ids.length - 1) : at + delta;
  if (next in ids) store.set({ selected: ids[next] });
}

/** Opens the run in the Perfetto UI, or says why that did not work. The host may have a better trace. */
async function showInPerfetto({
  root,
  model,
  trace = async () => traceOf(model),
  about,
}: Pick<Board, "root" | "model" | "trace" | "about">) {
  root.querySelector(".no-trace")?.remove();
  try {
    await openInPerfetto(trace, about?.title ?? "Underglass");
  } catch (error) {
    const { message } = error as Error;
    root.append(h("p.note.no-trace", { role: "alert" }, message));
  }
}

/** Opens the postcard's box. A board in a notebook gets it from its kernel, and says so if that does not answer. */
async function openPostcard(board: Board) {
  const { root } = board;
  root.querySelector(".no-tour")?.remove();
  if (!board.postcard) {
    await board.loadTour?.();
    const page = await import("./postcard_box.ts").catch(() => null);
    if (!page) {
      const words = "The kernel does not answer: run the cell again, then make the postcard.";
      return root.prepend(h("p.note.no-tour", { role: "alert" }, words));
    }
    board.postcard ??= new page.PostcardBox(board);
    root.append(board.postcard.element);
  }
  board.postcard.open();
}

/** Shows the next level; the first follows the last. A panel that is shown alone stays. */
function showMore(board: Board, by: number) {
  if (!board.only)
    board.showLevel(LEVELS[(LEVELS.indexOf(board.level) + by + LEVELS.length) % LEVELS.length]);
}

/** Goes to the next or the previous moment. */
function goToMoment(board: Board, by: number) {
  const { previous, next } = momentsAround(board.model, board.store.step);
  const moment = by > 0 ? next : previous;
  if (moment) board.goTo(moment.step);
}

/** Switches between steps and wall time, if the timeline is shown. */
function changeAxis({ axis, store }: Board) {
  if (axis) store.set({ axis: store.axis === "time" ? "steps" : "time" });
}

/** Closes the open box; if none is open, clears the range, the block or the selection, one per call. */
function dismiss(board: Board) {
  const { store, link, postcard, search } = board;
  if (board.card.isOpen) return board.card.close();
  const openBox = [link, postcard, search].find((box) => box?.isOpen);
  if (!board.help?.hidden) board.toggleHelp();
  else if (store.queue) board.toggleQueue();
  else if (!board.summary.box.hidden) board.summary.toggle();
  else if (openBox) openBox.close();
  else if (!search.walk.hidden) search.end();
  else if (store.range) board.brush(null);
  else if (store.block != null) board.lookAt(null);
  else board.select(null);
}
