/**
 * The state that all boards of one log share: the model, the cursor, the selection, playback.
 *
 * Boards in one page find their view by a key, even if each has loaded its own copy of this module, as
 * widgets do. A change in one board shows in all of them in the same animation frame, without a kernel.
 */

import type { KernelSync } from "../host/kernel_sync.ts";
import type { LogReader } from "../host/log_reader.ts";
import { openingRequest, openingStep } from "../model/index.ts";
import type { Model } from "../model/model.ts";
import type { Slo } from "../model/run_summary.ts";
import type { Board } from "./board.ts";
import { Store, type ViewState, type ViewStore } from "./store.ts";

/** what to show first; by default, the opening step */
export interface Opening {
  step?: number;
  selected?: number | null;
  range?: [number, number] | null;
  window?: [number, number] | null; // the steps in view, [from, to)
  axis?: ViewState["axis"];
  slo?: Slo;
  only?: string | null; // the panel to show
  level?: string; // how much to show
}

const SHARED = Symbol.for("underglass.views");

export const AXES: ViewState["axis"][] = ["steps", "time"];
/** The limits of the goodput until the reader sets others, in microseconds. */
export const SLO = { ttft: 150_000, itl: 40_000 };
const SPEEDS = [1, 2, 5, 10, 25, 60];

export class View {
  /** The model of the log, once it is read. */
  model: Model | null = null;
  boards: Set<Board> = new Set();
  /** Whether all boards that joined have left again. */
  isLeft = false;
  /** In a notebook: the packed log that the kernel gave, in base64. */
  source?: string;
  /** The log as it is read. */
  reading?: LogReader | null;
  /** In a notebook: the log. */
  bytes?: Promise<ArrayBufferView>;
  /** In a notebook: the last step of the kernel's log, of which `bytes` may be a part. */
  lastOfLog = 0;
  /** In a notebook: whether `bytes` is the whole log from the kernel. */
  isWhole = false;
  sync?: KernelSync;
  #ticking = false;
  /** What is to be shown once its events are read. */
  #wanted: Partial<ViewState> = {};
  #isFetching = false;
  store: ViewStore;

  constructor() {
    const state: ViewState = {
      step: 0,
      selected: null,
      block: null,
      queue: false,
      pinned: null,
      range: null,
      axis: "steps",
      playing: false,
      speed: 5,
      slo: SLO,
      touched: false,
    };
    this.store = new Store(state) as ViewStore;
  }

  /** Adds a board until `signal` aborts. */
  join(board: Board, signal: AbortSignal) {
    this.boards.add(board);
    signal.addEventListener("abort", () => {
      this.boards.delete(board);
      this.isLeft = !this.boards.size;
    });
  }

  /** Shows a model at the given step; by default, at its opening step. */
  open(model: Model, { step, selected, range, axis, slo }: Opening = {}) {
    this.model = model;
    if (slo) this.store.slo = slo;
    if (axis && AXES.includes(axis)) this.store.axis = axis;
    Object.assign(this.store, openingView(model, step, selected));
    if (!(Number(this.store.block) < model.settings.num_blocks)) this.store.block = null;
    this.store.range = range ? [this.clamp(range[0]), this.clamp(range[1])] : null;
  }

  clamp(step: number) {
    return clampStep(this.model as Model, step);
  }

  goTo(step: number) {
    this.show({ step: this.clamp(step), touched: true });
  }

  /** Shows a step, and what changes with it, once its events are read; of several steps, only the last. */
  show(values: Partial<ViewState>) {
    Object.assign(this.#wanted, values);
    if (!this.#isFetching) this.#showWanted();
  }

  async #showWanted() {
    const model = this.model as Model;
    const missing = () => {
      const { step = this.store.step, selected = this.store.selected } = this.#wanted;
      return model.fetch(step, selected);
    };
    this.#isFetching = true;
    for (let reading = missing(); reading && this.model === model; reading = missing())
      await reading.catch(() => {
        this.#wanted = {}; // the log is opened again without the part that is damaged
      });
    this.#isFetching = false;
    const values = this.#wanted;
    this.#wanted = {};
    if (this.model !== model) return;
    this.store.set(values);
    // While playing, the events of the next second are read ahead.
    const { playing, step, speed } = this.store;
    if (playing) model.fetch(this.clamp(step + speed))?.catch(() => {});
  }

  /** Selects the range between two steps, in either order; null clears it. */
  brush(a: number | null, b?: number) {
    const to = b as number;
    const range: ViewState["range"] = a == null ? null : [Math.min(a, to), Math.max(a, to)];
    if (String(range) !== String(this.store.range)) this.store.set({ range });
  }

  /** Selects the next speed; without `by`, the slowest follows the fastest. */
  faster(by?: number) {
    const next = SPEEDS.indexOf(this.store.speed) + (by ?? 1);
    const last = SPEEDS.length - 1;
    const index = by ? Math.min(Math.max(next, 0), last) : next % SPEEDS.length;
    this.store.set({ speed: SPEEDS[index] });
  }

  /** Starts or stops playback from the cursor, or from the first step if the cursor is at the last. */
  play(on: boolean) {
    const { store } = this;
    const model = this.model as Model;
    if (on && store.step >= model.lastStep) this.goTo(model.firstStep);
    store.set({ playing: on });
    if (!on || this.#ticking) return;
    this.#ticking = true;
    let last = performance.now();
    let due = 0;
    const tick = (now: number) => {
      this.#ticking = store.playing && this.boards.size > 0;
      if (!this.#ticking) return;
      due += ((now - last) / 1000) * store.speed;
      last = now;
      const steps = Math.floor(due);
      due -= steps;
      if (steps) this.goTo(store.step + steps);
      if (store.step >= (this.model as Model).lastStep) store.set({ playing: false });
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }
}

/**
 * The view of this key in this page, or a new one if all boards have left it: a notebook that is closed and
 * opened again has the same keys, but the widget models of the old view have lost their kernel.
 */
export function viewOf(key: string): View {
  const page = globalThis as unknown as Record<symbol, Map<string, View>>;
  const views = (page[SHARED] ??= new Map());
  for (const [other, { isLeft }] of views) if (isLeft) views.delete(other);
  const view = views.get(key) ?? new View();
  views.set(key, view);
  return view;
}

/** The step at which a model opens. */
export const firstShown = (model: Model, step?: number) =>
  clampStep(model, step ?? openingStep(model));

const clampStep = (model: Model, step: number) =>
  Math.min(Math.max(Math.round(step), model.firstStep), model.lastStep);

/** The given step and selection; by default, the opening step and the request it is about. */
function openingView(model: Model, step?: number, selected?: number | null) {
  const at = firstShown(model, step);
  if (selected !== undefined) {
    return { step: at, selected: model.request(selected) ? selected : null };
  }
  if (step == null) return { step: at, selected: openingRequest(model) };
  const moment = model.frame(at).decisions.find(({ hot, request }) => hot && request != null);
  return { step: at, selected: moment?.request ?? null };
}
