/**
 * Links the views of two runs: a change of cursor, selection or range in one view is applied to the other.
 *
 * The clock defines which moments correspond: the same step, or the same time since the run began.
 */

import { originOf } from "../drawing/wall_axis.js";

export class LinkedViews {
  clock = "step";

  /**
   * `renumbered` has [id in the first run, id in the second] of requests with two ids; `unmatched` has the ids
   * that only the first run has, and those that only the second has.
   */
  constructor(views, { renumbered, unmatched }, signal) {
    this.views = views;
    this.partners = [new Map(renumbered), new Map(renumbered.map(([a, b]) => [b, a]))];
    this.alone = unmatched.map((ids) => new Set(ids));
    this.echoes = [{}, {}]; // values set by the other view, which need not be sent back
    views.forEach((view, side) => {
      view.store.listen((names) => this.moved(side, names), signal);
    });
  }

  moved(side, names) {
    const { store } = this.views[side];
    const other = this.views[1 - side];
    if (!other.model) return;
    if (names.has("axis")) this.setAxis(store.axis);
    for (const name of ["step", "selected", "range", "playing"]) {
      if (!names.has(name)) continue;
      const known = this.echoes[side];
      const isEcho = name in known && String(known[name]) === String(store[name]);
      delete known[name];
      if (!isEcho && name !== "playing") this.send(1 - side, name, store);
      // The view that plays leads; the other follows step by step.
      if (name === "playing" && store.playing) other.store.set({ playing: false });
    }
  }

  send(side, name, { step, selected, range }) {
    const view = this.views[side];
    const value = {
      step: () => this.stepAt(side, step),
      selected: () => this.partnerOf(1 - side, selected),
      range: () => range?.map((end) => this.stepAt(side, end)) ?? null,
    }[name]();
    if (String(view.store[name]) === String(value)) return;
    this.echoes[side][name] = value;
    view.store.set({ [name]: value, touched: true });
  }

  /** The other run's id of a request of `side`, or null if it has none. */
  partnerOf(side, id) {
    if (id == null || this.alone[side].has(id)) return null;
    return this.partners[side].get(id) ?? id;
  }

  /** The step of one side that corresponds to `step` of the other. */
  stepAt(side, step) {
    const view = this.views[side];
    if (this.clock === "step") return view.clamp(step);
    return stepAtTime(view.model, timeOf(this.views[1 - side].model, step), view.clamp(step));
  }

  /** Sets the axis of both timelines and the clock that goes with it. */
  setAxis(axis) {
    this.clock = axis === "time" ? "time" : "step";
    for (const { store } of this.views) store.set({ axis });
    this.send(1, "step", this.views[0].store);
  }
}

/** The end of a step in us since its run began; NaN if the log has no times. */
export function timeOf(model, step) {
  return model.measures.end[step - model.firstStep] - originOf(model);
}

/** The last step that had ended at a time, or the first step; `otherwise` if the log has no times. */
export function stepAtTime(model, time, otherwise) {
  const { end } = model.measures;
  const origin = originOf(model);
  if (!(time >= 0)) return otherwise;
  let [low, high] = [0, model.stepCount - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    // A step that has not ended has no time; it comes after all steps that have.
    if (end[middle] - origin <= time) low = middle;
    else high = middle - 1;
  }
  return model.firstStep + low;
}
