/**
 * The state that all boards of one log share: the model, the cursor, the selection, playback.
 *
 * Boards in one page find their view by a key, even if each has loaded its own copy of this module, as
 * widgets do. A change in one board shows in all of them in the same animation frame, without a kernel.
 */

import { openingRequest, openingStep } from "../model/index.js";
import { Store } from "./store.js";

const SHARED = Symbol.for("underglass.views");

export const AXES = ["steps", "time"];
/** The limits of the goodput until the reader sets others, in microseconds. */
export const SLO = { ttft: 150_000, itl: 40_000 };
const SPEEDS = [1, 2, 5, 10, 25, 60];

export class View {
  /** The model of the log, once it is read. @type {import("../model/index.js").Model | null} */
  model = null;
  boards = new Set();
  /** Whether all boards that joined have left again. */
  isLeft = false;
  /** In a notebook: the packed log that the kernel gave, in base64. @type {string | undefined} */
  source;
  #ticking = false;

  constructor() {
    this.store = new Store({
      step: 0,
      selected: null, // a request's id
      block: null, // the highlighted block
      queue: false, // whether the queue is open
      pinned: null, // the request whose lane is on top
      range: null, // the selected steps, [first, last]
      axis: "steps", // or "time": the unit of the timeline
      playing: false,
      speed: 5,
      slo: SLO,
      touched: false, // whether the reader has moved; before that, nothing is faded
    });
  }

  /** Adds a board until `signal` aborts. */
  join(board, signal) {
    this.boards.add(board);
    signal.addEventListener("abort", () => {
      this.boards.delete(board);
      this.isLeft = !this.boards.size;
    });
  }

  /** Shows a model at the given step; by default, at its opening step. */
  open(model, { step, selected, range, axis, slo } = {}) {
    this.model = model;
    if (slo) this.store.slo = slo;
    if (AXES.includes(axis)) this.store.axis = axis;
    Object.assign(this.store, openingView(model, step, selected));
    if (!(this.store.block < model.settings.num_blocks)) this.store.block = null;
    this.store.range = range ? range.map((end) => this.clamp(end)) : null;
  }

  clamp(step) {
    return clampStep(this.model, step);
  }

  goTo(step) {
    this.store.set({ step: this.clamp(step), touched: true });
  }

  /** Selects the range between two steps, in either order; null clears it. */
  brush(a, b) {
    const range = a == null ? null : [Math.min(a, b), Math.max(a, b)];
    if (String(range) !== String(this.store.range)) this.store.set({ range });
  }

  /** Selects the next speed; without `by`, the slowest follows the fastest. */
  faster(by) {
    const next = SPEEDS.indexOf(this.store.speed) + (by ?? 1);
    const last = SPEEDS.length - 1;
    const index = by ? Math.min(Math.max(next, 0), last) : next % SPEEDS.length;
    this.store.set({ speed: SPEEDS[index] });
  }

  /** Starts or stops playback from the cursor, or from the first step if the cursor is at the last. */
  play(on) {
    const { store } = this;
    if (on && store.step >= this.model.lastStep) this.goTo(this.model.firstStep);
    store.set({ playing: on });
    if (!on || this.#ticking) return;
    this.#ticking = true;
    let last = performance.now();
    let due = 0;
    const tick = (now) => {
      this.#ticking = store.playing && this.boards.size > 0;
      if (!this.#ticking) return;
      due += ((now - last) / 1000) * store.speed;
      last = now;
      const steps = Math.floor(due);
      due -= steps;
      if (steps) this.goTo(store.step + steps);
      if (store.step >= this.model.lastStep) store.set({ playing: false });
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }
}

/**
 * The view of this key in this page, or a new one if all boards have left it: a notebook that is closed and
 * opened again has the same keys, but the widget models of the old view have lost their kernel.
 */
export function viewOf(key) {
  const views = (globalThis[SHARED] ??= new Map());
  for (const [other, { isLeft }] of views) if (isLeft) views.delete(other);
  if (!views.has(key)) views.set(key, new View());
  return views.get(key);
}

const clampStep = (model, step) =>
  Math.min(Math.max(Math.round(step), model.firstStep), model.lastStep);

/** The given step and selection; by default, the opening step and the request it is about. */
function openingView(model, step, selected) {
  const at = clampStep(model, step ?? openingStep(model));
  if (selected !== undefined) {
    return { step: at, selected: model.request(selected) ? selected : null };
  }
  if (step == null) return { step: at, selected: openingRequest(model) };
  const moment = model.frame(at).decisions.find(({ hot, request }) => hot && request != null);
  return { step: at, selected: moment?.request ?? null };
}
