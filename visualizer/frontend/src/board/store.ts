/**
 * The state of a view: its cursor, its selection, its time axis. Listeners are called at most once per animation
 * frame, after it has changed.
 */

import type { Axis } from "../drawing/time_axis.ts";
import type { Slo } from "../model/run_summary.ts";

export interface ViewState {
  step: number;
  selected: number | null; // a request's id
  block: number | null; // the highlighted block
  queue: boolean; // whether the queue is open
  pinned: number | null; // the request whose lane is on top
  range: [first: number, last: number] | null; // the selected steps
  axis: Axis["kind"]; // the unit of the timeline
  playing: boolean;
  speed: number; // steps per second
  slo: Slo;
  touched: boolean; // whether the reader has moved; before that, nothing is faded
  window?: [from: number, to: number]; // the part of the axis in view
  scrolled?: number; // px
}

export type ViewStore = Store & ViewState;

/** gets the names of the changed fields */
type Listener = (names: Set<string>) => void;

/** The fields by name. */
const fieldsOf = (store: object) => store as Record<string, unknown>;

export class Store {
  #listeners: Set<Listener> = new Set();
  #changed: Set<string> = new Set();
  #scheduled = false;

  constructor(values: ViewState) {
    Object.assign(this, values);
  }

  /** Sets the given fields. Listeners get the changed ones together, in the next animation frame. */
  set(values: Partial<ViewState>) {
    const fields = fieldsOf(this);
    for (const [name, value] of Object.entries(values)) {
      if (fields[name] === value) continue;
      fields[name] = value;
      this.#changed.add(name);
    }
    if (this.#changed.size && !this.#scheduled) {
      this.#scheduled = true;
      requestAnimationFrame(() => this.#notify());
    }
  }

  /** Calls `listener(names)` with the set of changed fields, until `signal` aborts. */
  listen(listener: Listener, signal: AbortSignal) {
    this.#listeners.add(listener);
    signal.addEventListener("abort", () => this.#listeners.delete(listener));
  }

  #notify() {
    this.#scheduled = false;
    const names = this.#changed;
    this.#changed = new Set();
    for (const listener of this.#listeners) listener(names);
  }
}
