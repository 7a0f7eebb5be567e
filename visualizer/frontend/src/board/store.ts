/** The state of a board as fields. Listeners are called at most once per animation frame, after it has changed. */

import type { Axis } from "../drawing/time_axis.ts";
import type { Slo } from "../model/run_summary.ts";

/** a view's cursor, its selection, its time axis */
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

export type ViewStore = Store<ViewState> & ViewState;

/** gets the names of the changed fields */
type Listener = (names: Set<string>) => void;

export class Store<State extends object> {
  #listeners: Set<Listener> = new Set();
  #changed: Set<string> = new Set();

  constructor(values: State) {
    Object.assign(this, values);
  }

  /** Sets the given fields. Listeners get the changed ones together, in the next animation frame. */
  set(values: Partial<State>) {
    const fields = this as unknown as Partial<State>;
    for (const name of Object.keys(values) as (keyof State & string)[]) {
      if (fields[name] === values[name]) continue;
      fields[name] = values[name];
      this.touch(name);
    }
  }

  /** Has the listeners called as if a field had changed. */
  touch(name: string) {
    if (!this.#changed.size) requestAnimationFrame(() => this.#notify());
    this.#changed.add(name);
  }

  /** Calls `listener(names)` with the set of changed fields, until `signal` aborts. */
  listen(listener: Listener, signal: AbortSignal) {
    this.#listeners.add(listener);
    signal.addEventListener("abort", () => this.#listeners.delete(listener));
  }

  #notify() {
    const names = this.#changed;
    this.#changed = new Set();
    for (const listener of this.#listeners) listener(names);
  }
}
