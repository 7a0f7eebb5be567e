/**
 * The state of a view: its cursor, its selection, its time axis. Listeners are called at most once per animation
 * frame, after it has changed.
 */

export class Store {
  #listeners = new Set();
  #changed = new Set();
  #scheduled = false;

  constructor(values) {
    Object.assign(this, values);
  }

  /** Sets the given fields. Listeners get the changed ones together, in the next animation frame. */
  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (this[name] === value) continue;
      this[name] = value;
      this.#changed.add(name);
    }
    if (this.#changed.size && !this.#scheduled) {
      this.#scheduled = true;
      requestAnimationFrame(() => this.#notify());
    }
  }

  /** Calls `listener(names)` with the set of changed fields, until `signal` aborts. */
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
