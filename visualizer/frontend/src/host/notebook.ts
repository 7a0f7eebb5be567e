/**
 * A board in a notebook.
 *
 * Each panel is a widget. The panels of one log share one widget model with the state of the view: the log, the
 * step, the selected request (or -1), the range and the window. Changes are applied here, in all panels of the
 * page at once. Python gets them a few times a second, because a round trip takes about 50 ms.
 *
 * A notebook saves this state, so it does not contain a large log: `log`, base64 text, is then a part that is small
 * enough to be saved, `whole` is false, and the page requests the whole log from the kernel.
 */

import { Board } from "../board/board.ts";
import { cardDrawer } from "../board/card.ts";
import type { Seat } from "../board/seat.ts";
import { type Opening, type View, viewOf } from "../board/view.ts";
import { h } from "../drawing/html.ts";
import type { Told } from "../tour/open_tour.ts";
import { KernelSync, type WidgetModel } from "./kernel_sync.ts";
import { asBytes, fromBase64 } from "./log_bytes.ts";
import { keep } from "./outputs.ts";

/** draws a log */
export type Load = (board: Board, log: ArrayBufferView, opening: Opening) => Promise<void>;

type Host = { getModel?: (reference: string) => Promise<WidgetModel> };

/** what anywidget renders */
export type Widget = { model: WidgetModel; el: HTMLElement; signal?: AbortSignal; host?: Host };

const PATIENCE_FOR_TRACE = 60_000; // ms; a million events take a while
const PATIENCE_FOR_PART = 10_000; // ms
const NO_KERNEL = "The kernel does not answer: run the cell again, then decide.";
const PATIENCE = 2000; // ms to wait for a kernel that may be busy or gone

/** anywidget's `render`. */
export const inNotebook =
  (load: Load): ((widget: Widget) => Promise<void>) =>
  async ({ model: traits, el, signal, host }) => {
    const ending = signal ?? new AbortController().signal;
    const reference = traits.get("view_model");
    const shared = await modelOf(traits, host, reference);
    const view = viewOf(reference);
    const board = new Board(el, {
      signal: ending,
      view,
      panel: traits.get("panel"),
      level: traits.get("level"),
      project: shared.get("project"),
      about: shared.get("about"),
      run: shared.get("run"),
      trace: () => traceFrom(shared),
      seat: seatIn(shared),
      tell: () => tourFrom(shared),
      loadTour: () => partFrom(shared, "tour.js"),
      onChange: () => {
        keepLevel(traits, board);
        sync.moved();
      },
    });
    const sync = (view.sync ??= new KernelSync(
      shared,
      idOf(reference),
      () => Object.assign({}, ...[...view.boards].filter((one) => one.model).map(known)),
      (isDone) => view.boards.forEach((one) => sayKnown(one, isDone)),
    ));
    const isWhole = !traits.get("panel") && !traits.get("only");
    keep(traits, board, () => [board], isWhole ? cardDrawer(board) : undefined);
    board.showMessage("loading", h("p.muted", "Requesting the log"));
    const listen = (name: string, handler: (...what: any[]) => void) =>
      hear(shared, name, (...what) => ending.aborted || handler(...what), ending);
    board.reload = (log) =>
      log.byteLength
        ? load(board, log, { ...openingOf(shared), only: traits.get("only") })
        : board.showMessage("empty", h("p", missing(shared)));
    // A change that comes with another log is applied when that log is opened.
    const moved = (name: string, go: () => void) =>
      listen(name, () => board.model && view.source === shared.get("log") && go());
    moved("change:step", () => board.goTo(shared.get("step")));
    for (const name of ["selected", "range"] as const)
      moved(`change:${name}`, () => board.restore({ [name]: openingOf(shared)[name] }));
    moved("change:slo", () => board.restore({ slo: openingOf(shared).slo }));
    moved("change:axis", () => board.restore({ axis: shared.get("axis") }));
    moved("change:window", () => {
      const { window } = openingOf(shared);
      if (window && String(window) !== String(board.state().window)) board.restore({ window });
    });
    hear(traits, "change:level", () => board.restore({ level: traits.get("level") }), ending);
    listen("change:log", () => replaceLog(view, shared));
    listen("change:run", () => board.showRun(shared.get("run")));
    view.source ??= shared.get("log");
    view.bytes ??= bytesFor(view, shared);
    view.lastOfLog = lastOfLog(shared);
    await board.reload(await view.bytes);
    if (!shared.get("whole") && !view.isWhole) board.root.append(partOnly(shared));
    if (shared.get("run")?.more && view.boards.size === 1) shared.send({ ask: "more" });
  };

/** The scheduler's seat, whose page and Python are in the kernel. */
export const seatIn = (kernel: WidgetModel, replica?: string): Seat => ({
  python: { kernel, replica },
  load: () => seatFrom(kernel),
});

/** The page of the scheduler's seat, from a kernel. */
export async function seatFrom(kernel: WidgetModel) {
  const page = await partFrom(kernel, "seat.js");
  if (!page) throw NO_KERNEL;
  return page;
}

type Asked = "log" | "trace" | "tour" | "seat.js" | "tour.js";

/** Calls `handler` when a widget's model reports `name`, until `signal` aborts. */
export function hear(
  traits: WidgetModel,
  name: string,
  handler: (...what: any[]) => void,
  signal: AbortSignal,
) {
  traits.on(name, handler);
  signal.addEventListener("abort", () => traits.off(name, handler));
}

/** The bytes that the kernel answers with. A kernel that is gone never answers. */
function askKernel(traits: WidgetModel, what: Asked) {
  return new Promise<Uint8Array>((resolve) => {
    const end = new AbortController();
    const take = (message: Record<string, unknown>, [bytes]: DataView[] = []) => {
      if (!message[what]) return;
      end.abort();
      resolve(asBytes(bytes));
    };
    hear(traits, "msg:custom", take, end.signal);
    traits.send({ ask: what });
  });
}

/** The bytes that the kernel answers with, or null if it does not answer in time. */
export const askForAWhile = (traits: WidgetModel, what: Asked, patience: number) =>
  Promise.race([askKernel(traits, what), wait(patience)]);

const wait = (time: number) =>
  new Promise<null>((resolve) => setTimeout(() => resolve(null), time));

/** The trace of the log for Perfetto, from the kernel. */
async function traceFrom(shared: WidgetModel) {
  const bytes = await askForAWhile(shared, "trace", PATIENCE_FOR_TRACE);
  if (bytes) return bytes;
  throw new Error("The kernel does not answer: run the cell again, then open the trace.");
}

/** A module that is loaded when it is wanted, from the kernel; null if it does not answer. */
export async function partFrom(shared: WidgetModel, name: "seat.js" | "tour.js") {
  const text = await askForAWhile(shared, name, PATIENCE_FOR_PART);
  if (!text) return null;
  const blob = new Blob([text as Uint8Array<ArrayBuffer>], { type: "text/javascript" });
  return import(URL.createObjectURL(blob));
}

/** The tour, from the kernel; null if it does not answer. */
export async function tourFrom(shared: WidgetModel): Promise<Told | null> {
  const bytes = await askForAWhile(shared, "tour", PATIENCE_FOR_TRACE);
  return bytes && JSON.parse(new TextDecoder().decode(bytes));
}

/** Shows another log in all panels of the view. Each panel gets the message; the first one acts. */
async function replaceLog(view: View, shared: WidgetModel) {
  if (view.source === shared.get("log")) return;
  view.source = shared.get("log");
  view.play(false);
  view.isWhole = false;
  view.bytes = bytesFor(view, shared);
  view.lastOfLog = lastOfLog(shared);
  showAgain(view, await view.bytes);
}

/** Of the kernel's log; 0 in a notebook that was saved without this number. */
const lastOfLog = (shared: WidgetModel): number => shared.get("sizes")?.last_step ?? 0;

/** Shows a log in place of the one that the panels show. */
function showAgain(view: View, bytes: ArrayBufferView) {
  view.reading = null;
  for (const { root, reload } of view.boards) {
    root.querySelector(".part")?.remove();
    reload?.(bytes);
  }
}

/** The widget model that a reference names; hosts provide it in one of two ways. */
export function modelOf(
  traits: WidgetModel,
  host: Host | undefined,
  reference: string,
): Promise<WidgetModel> {
  const id = idOf(reference);
  return host?.getModel ? host.getModel(`anywidget:${id}`) : traits.widget_manager.get_model(id);
}

const idOf = (reference: string) => reference.replace("IPY_MODEL_", "");

function openingOf(shared: WidgetModel): Opening {
  const listed = (name: string) => (shared.get(name)?.length ? shared.get(name) : null);
  const selected = shared.get("selected");
  const [ttft, itl] = shared.get("slo") ?? [];
  return {
    step: shared.get("step"),
    selected: selected < 0 ? null : selected,
    range: listed("range"),
    window: listed("window"),
    axis: shared.get("axis"),
    slo: ttft === undefined ? undefined : { ttft: 1000 * ttft, itl: 1000 * itl },
  };
}

/** The whole log from the kernel if it answers in time, otherwise the saved part, which a late answer replaces. */
export async function bytesFor(view: View, shared: WidgetModel): Promise<ArrayBufferView> {
  const saved = fromBase64(shared.get("log"));
  if (shared.get("whole")) return saved;
  const asked = askKernel(shared, "log").then((bytes) => {
    if (view.isWhole) return bytes;
    view.isWhole = true;
    view.bytes = Promise.resolve(bytes);
    if (view.reading) showAgain(view, bytes);
    return bytes;
  });
  return Promise.race([asked, wait(PATIENCE).then(() => saved)]);
}

/** A message: why there is no log to draw, and what to do. */
export function missing(shared: WidgetModel) {
  return shared.get("whole")
    ? "The notebook was saved without this log. Run the cell again to draw the board."
    : `The notebook does not contain this log, because ${tooLarge(shared)}`;
}

/** A note: a part of the log is shown, and what to do. */
export function partOnly(shared: WidgetModel) {
  const words = `The notebook contains a part of this log, because ${tooLarge(shared)}`;
  return h("p.note.part", { role: "status" }, words);
}

function tooLarge(shared: WidgetModel) {
  const { packed = 0, limit = 0 } = shared.get("sizes") ?? {};
  const megabytes = (bytes: number) => (bytes / 1e6).toFixed(1);
  return (
    `its ${megabytes(packed)} MB, packed, are more than the ${megabytes(limit)} MB that are saved. ` +
    'Run the cell again to see all of it. to_html(log, "board.html") writes all of it to a page of its own.'
  );
}

/** The state of a board for the kernel; a panel without a time axis sends no window. */
function known(board: Board) {
  const { step, selected, range, window, axis, slo } = board.state();
  const limits = [slo.ttft / 1000, slo.itl / 1000];
  const state = { step, selected: selected ?? -1, range: range ?? [], axis, slo: limits };
  return window === undefined ? state : { ...state, window: window ?? [] };
}

/** The level belongs to one board, not to all boards of its log, so it is in this widget's own model. */
function keepLevel(traits: WidgetModel, { level }: Board) {
  if ((traits.get("level") ?? level) === level) return;
  traits.set("level", level);
  traits.save_changes();
}

/** Sets `data-synced` on the root: the step and selection that the kernel has; absent while they are being sent. */
function sayKnown({ root, store }: Board, isDone: boolean) {
  if (isDone) root.dataset.synced = `${store.step} ${store.selected ?? -1}`;
  else delete root.dataset.synced;
}
