/**
 * The state of a view: its cursor, its selection, its time axis. Listeners are called at most once per animation
 * frame, after it has changed.
 *
 * @typedef {object} ViewState
 * @property {number} step
 * @property {number | null} selected   a request's id
 * @property {number | null} block      the highlighted block
 * @property {boolean} queue            whether the queue is open
 * @property {number | null} pinned     the request whose lane is on top
 * @property {[first: number, last: number] | null} range  the selected steps
 * @property {Axis["kind"]} axis        the unit of the timeline
 * @property {boolean} playing
 * @property {number} speed             steps per second
 * @property {Slo} slo
 * @property {boolean} touched          whether the reader has moved; before that, nothing is faded
 * @property {[from: number, to: number]} [window]  the part of the axis in view
 * @property {number} [scrolled]        px
 *
 * @typedef {Store & ViewState} ViewStore
 * @typedef {(names: Set<string>) => void} Listener  gets the names of the changed fields
 */

/** @import { Axis } from "../drawing/time_axis.js" */
/** @import { Slo } from "../model/waterfall_words.js" */

/** The fields by name. @param {object} store */
const fieldsOf = (store) => /** @type {Record<string, unknown>} */ (store);

export class Store {
  /** @type {Set<Listener>} */
  #listeners = new Set();
  /** @type {Set<string>} */
  #changed = new Set();
  #scheduled = false;

  /** @param {ViewState} values */
  constructor(values) {
    Object.assign(this, values);
  }

  /**
   * Sets the given fields. Listeners get the changed ones together, in the next animation frame.
   *
   * @param {Partial<ViewState>} values
   */
  set(values) {
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

  /**
   * Calls `listener(names)` with the set of changed fields, until `signal` aborts.
   *
   * @param {Listener} listener @param {AbortSignal} signal
   */
  listen(listener, signal) {
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
