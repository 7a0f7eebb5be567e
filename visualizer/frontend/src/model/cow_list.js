/**
 * A list that is copied in no time: copies share pages of 64 items until one side writes to one.
 *
 * This is what makes seeking instant in a log of a million events. The model keeps a copy of the
 * whole folded state about every thousand events, and such a copy costs what changed, not what is.
 * Unix's fork() shares memory the same way: copy on write.
 *
 * @template T
 */
export class CowList {
  constructor() {
    /** @type {(T[] | undefined)[]} */
    this.pages = [];
    /** Which pages only this list can reach. @type {boolean[]} */
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
   * Takes out an item, which is quick at the end; those after it move down.
   *
   * @param {T} item
   * @returns {boolean}  whether it was there
   */
  take(item) {
    let at = this.length - 1;
    while (at >= 0 && this.get(at) !== item) at--;
    if (at < 0) return false;
    this.length--;
    for (; at < this.length; at++) this.set(at, /** @type {T} */ (this.get(at + 1)));
    return true;
  }

  /** All items there are, by index. @returns {T[]} */
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
