/**
 * A copy-on-write list: copies share pages of 64 items until one of them writes to a page.
 *
 * It makes seeking fast in a log of a million events: the model keeps a copy of the whole folded state about
 * every thousand events, and such a copy costs only what has changed. Unix's fork() shares memory the same way.
 *
 * @template T
 */
export class CowList {
  constructor() {
    /** @type {(T[] | undefined)[]} */
    this.pages = [];
    /** The pages that are not shared. @type {boolean[]} */
    this.own = [];
    this.length = 0;
  }

  /** @returns {CowList<T>} */
  copy() {
    const copy = new CowList();
    copy.pages = this.pages.slice();
    copy.length = this.length;
    this.own = [];
    return copy;
  }

  /** @param {number} index @returns {T | undefined} */
  get(index) {
    const page = this.pages[index >> 6];
    return page === undefined ? undefined : page[index & 63];
  }

  /** @param {number} index @param {T} item */
  set(index, item) {
    this.#writable(index >> 6)[index & 63] = item;
    if (index >= this.length) this.length = index + 1;
  }

  /** @param {number} index */
  delete(index) {
    const number = index >> 6;
    const page = this.#writable(number);
    page[index & 63] = /** @type {any} */ (undefined);
    if (page.every((item) => item === undefined)) this.pages[number] = undefined;
  }

  /** @param {T} item */
  push(item) {
    this.set(this.length, item);
  }

  /**
   * Removes an item, which is fast near the end; later items move down.
   *
   * @param {T} item
   * @returns {boolean}  whether the list had it
   */
  take(item) {
    let at = this.length - 1;
    while (at >= 0 && this.get(at) !== item) at--;
    if (at < 0) return false;
    this.length--;
    for (; at < this.length; at++) this.set(at, /** @type {T} */ (this.get(at + 1)));
    return true;
  }

  /** All items, by index. @returns {T[]} */
  list() {
    const items = [];
    for (let index = 0; index < this.length; index++) {
      const page = this.pages[index >> 6];
      if (page === undefined) index |= 63;
      else if (page[index & 63] !== undefined) items.push(page[index & 63]);
    }
    return items;
  }

  /** @param {number} number @returns {T[]} */
  #writable(number) {
    const page = this.pages[number];
    if (page !== undefined && this.own[number]) return page;
    this.own[number] = true;
    return (this.pages[number] = page === undefined ? new Array(64).fill(undefined) : page.slice());
  }
}
