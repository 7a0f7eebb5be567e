/**
 * The state that all boards of one log share: the model, the cursor, the selection, playback.
 *
 * Boards in one page find their view by a key, even if each has loaded its own copy of this module, as
 * widgets do. A change in one board shows in all of them in the same animation frame, without a kernel.
 *
 * @typedef {object} Opening  what to show first; by default, the opening step
 * @property {number} [step]
 * @property {number | null} [selected]
 * @property {[number, number] | null} [range]
 * @property {[number, number] | null} [window]  the steps in view, [from, to)
 * @property {ViewState["axis"]} [axis]
 * @property {Slo} [slo]
 * @property {string | null} [only]  the panel to show
 */

/** @import { KernelSync } from "../host/kernel_sync.js" */
/** @import { LogReader } from "../host/log_reader.js" */
/** @import { Model } from "../model/model.js" */
/** @import { Slo } from "../model/waterfall_words.js" */
/** @import { Board } from "./board.js" */
/** @import { ViewState, ViewStore } from "./store.js" */
import { openingRequest, openingStep } from "../model/index.js";
import { Store } from "./store.js";

const SHARED = Symbol.for("underglass.views");

/** @type {ViewState["axis"][]} */
export const AXES = ["steps", "time"];
/** The limits of the goodput until the reader sets others, in microseconds. */
export const SLO = { ttft: 150_000, itl: 40_000 };
const SPEEDS = [1, 2, 5, 10, 25, 60];

export class View {
  /** The model of the log, once it is read. @type {Model | null} */
  model = null;
  /** @type {Set<Board>} */
  boards = new Set();
  /** Whether all boards that joined have left again. */
  isLeft = false;
  /** In a notebook: the packed log that the kernel gave, in base64. @type {string | undefined} */
  source;
  /** The log as it is read. @type {LogReader | null | undefined} */
  reading;
  /** In a notebook: the log. @type {Promise<ArrayBufferView> | undefined} */
  bytes;
  /** In a notebook: whether `bytes` is the whole log from the kernel. */
  isWhole = false;
  /** In a notebook: takes the log that the kernel sends. @type {((bytes: DataView) => void) | undefined} */
  gotLog;
  /** @type {KernelSync | undefined} */
  sync;
  #ticking = false;

  constructor() {
    /** @type {ViewState} */
    const state = {
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
    this.store = /** @type {ViewStore} */ (new Store(state));
  }

  /** Adds a board until `signal` aborts. @param {Board} board @param {AbortSignal} signal */
  join(board, signal) {
    this.boards.add(board);
    signal.addEventListener("abort", () => {
      this.boards.delete(board);
      this.isLeft = !this.boards.size;
    });
  }

  /**
   * Shows a model at the given step; by default, at its opening step.
   *
   * @param {Model} model @param {Opening} [opening]
   */
  open(model, { step, selected, range, axis, slo } = {}) {
    this.model = model;
    if (slo) this.store.slo = slo;
    if (axis && AXES.includes(axis)) this.store.axis = axis;
    Object.assign(this.store, openingView(model, step, selected));
    if (!(Number(this.store.block) < model.settings.num_blocks)) this.store.block = null;
    this.store.range = range ? [this.clamp(range[0]), this.clamp(range[1])] : null;
  }

  /** @param {number} step */
  clamp(step) {
    return clampStep(/** @type {Model} */ (this.model), step);
  }

  /** @param {number} step */
  goTo(step) {
    this.store.set({ step: this.clamp(step), touched: true });
  }

  /**
   * Selects the range between two steps, in either order; null clears it.
   *
   * @param {number | null} a @param {number} [b]
   */
  brush(a, b) {
    const to = /** @type {number} */ (b);
    /** @type {ViewState["range"]} */
    const range = a == null ? null : [Math.min(a, to), Math.max(a, to)];
    if (String(range) !== String(this.store.range)) this.store.set({ range });
  }

  /** Selects the next speed; without `by`, the slowest follows the fastest. @param {number} [by] */
  faster(by) {
    const next = SPEEDS.indexOf(this.store.speed) + (by ?? 1);
    const last = SPEEDS.length - 1;
    const index = by ? Math.min(Math.max(next, 0), last) : next % SPEEDS.length;
    this.store.set({ speed: SPEEDS[index] });
  }

  /**
   * Starts or stops playback from the cursor, or from the first step if the cursor is at the last.
   *
   * @param {boolean} on
   */
  play(on) {
    const { store } = this;
    const model = /** @type {Model} */ (this.model);
    if (on && store.step >= model.lastStep) this.goTo(model.firstStep);
    store.set({ playing: on });
    if (!on || this.#ticking) return;
    this.#ticking = true;
    let last = performance.now();
    let due = 0;
    /** @param {number} now */
    const tick = (now) => {
      this.#ticking = store.playing && this.boards.size > 0;
      if (!this.#ticking) return;
      due += ((now - last) / 1000) * store.speed;
      last = now;
      const steps = Math.floor(due);
      due -= steps;
      if (steps) this.goTo(store.step + steps);
      if (store.step >= /** @type {Model} */ (this.model).lastStep) store.set({ playing: false });
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }
}

/**
 * The view of this key in this page, or a new one if all boards have left it: a notebook that is closed and
 * opened again has the same keys, but the widget models of the old view have lost their kernel.
 *
 * @param {string} key
 * @returns {View}
 */
export function viewOf(key) {
  const page = /** @type {Record<symbol, Map<string, View>>} */ (
    /** @type {unknown} */ (globalThis)
  );
  const views = (page[SHARED] ??= new Map());
  for (const [other, { isLeft }] of views) if (isLeft) views.delete(other);
  const view = views.get(key) ?? new View();
  views.set(key, view);
  return view;
}

/** @param {Model} model @param {number} step */
const clampStep = (model, step) =>
  Math.min(Math.max(Math.round(step), model.firstStep), model.lastStep);

/**
 * The given step and selection; by default, the opening step and the request it is about.
 *
 * @param {Model} model @param {number} [step] @param {number | null} [selected]
 */
function openingView(model, step, selected) {
  const at = clampStep(model, step ?? openingStep(model));
  if (selected !== undefined) {
    return { step: at, selected: model.request(selected) ? selected : null };
  }
  if (step == null) return { step: at, selected: openingRequest(model) };
  const moment = model.frame(at).decisions.find(({ hot, request }) => hot && request != null);
  return { step: at, selected: moment?.request ?? null };
}
