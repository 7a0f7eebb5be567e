/**
 * What the panels of one log share: the folded log, the cursor, the selection, and who plays.
 *
 * Panels in one page find each other by a key, also when each has loaded a copy of this module, as
 * widgets do. Moving in one moves all of them in the same frame, without asking a kernel.
 */

import { openingRequest, openingStep } from "../model/index.js";
import { Store } from "./store.js";

const SHARED = Symbol.for("underglass.views");

export const AXES = ["steps", "time"];
const SPEEDS = [1, 2, 5, 10, 25, 60];

export class View {
  /** The folded log, once it is read. @type {import("../model/index.js").Model | null} */
  model = null;
  boards = new Set();
  /** Have all boards that joined left again? */
  isLeft = false;
  /** In a notebook: the packed log that the kernel gave, in base64. @type {string | undefined} */
  source;
  #ticking = false;

  constructor() {
    this.store = new Store({
      step: 0,
      selected: null, // a request's id
      block: null, // a block that is looked at
      range: null, // [first, last] step of what is summed up
      axis: "steps", // or "time": what the timeline counts
      playing: false,
      speed: 5,
    });
  }

  /** A panel joins until `signal` aborts. */
  join(board, signal) {
    this.boards.add(board);
    signal.addEventListener("abort", () => {
      this.boards.delete(board);
      this.isLeft = !this.boards.size;
    });
  }

  /** Takes a log, at what was asked for, or where something happens. */
  open(model, { step, selected, range, axis } = {}) {
    this.model = model;
    if (AXES.includes(axis)) this.store.axis = axis;
    Object.assign(this.store, openingView(model, step, selected));
    if (!(this.store.block < model.settings.num_blocks)) this.store.block = null;
    this.store.range = range ? range.map((end) => this.clamp(end)) : null;
  }

  clamp(step) {
    return clampStep(this.model, step);
  }

  goTo(step) {
    this.store.set({ step: this.clamp(step) });
  }

  /** The range between two steps, in either order; null for none. */
  brush(a, b) {
    const range = a == null ? null : [Math.min(a, b), Math.max(a, b)];
    if (String(range) !== String(this.store.range)) this.store.set({ range });
  }

  /** The next speed; without `by` the slowest follows the fastest. */
  faster(by) {
    const next = SPEEDS.indexOf(this.store.speed) + (by ?? 1);
    const last = SPEEDS.length - 1;
    const index = by ? Math.min(Math.max(next, 0), last) : next % SPEEDS.length;
    this.store.set({ speed: SPEEDS[index] });
  }

  /** Plays from the cursor, from the start again if it stands at the end, and stops at the end. */
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
 * The view of this key in this page; a new one where all have left it. Whoever closes a notebook and opens it
 * again finds the same widgets by the same keys, but the models behind the old view have lost their kernel.
 */
export function viewOf(key) {
  const views = (globalThis[SHARED] ??= new Map());
  for (const [other, { isLeft }] of views) if (isLeft) views.delete(other);
  if (!views.has(key)) views.set(key, new View());
  return views.get(key);
}

const clampStep = (model, step) =>
  Math.min(Math.max(Math.round(step), model.firstStep), model.lastStep);

/** The first frame: what was asked for, else the step where something happens and whom it happens to. */
function openingView(model, step, selected) {
  const at = clampStep(model, step ?? openingStep(model));
  if (selected !== undefined) {
    return { step: at, selected: model.request(selected) ? selected : null };
  }
  if (step == null) return { step: at, selected: openingRequest(model) };
  const moment = model.frame(at).decisions.find(({ hot, request }) => hot && request != null);
  return { step: at, selected: moment?.request ?? null };
}
