/**
 * A copy-on-write list: copies share pages of 64 items until one of them writes to a page.
 *
 * It makes seeking fast in a log of a million events: the model keeps a copy of the whole folded state about
 * every thousand events, and such a copy costs only what has changed. Unix's fork() shares memory the same way.
 */
export class CowList<T> {
  pages: ((T | undefined)[] | undefined)[] = [];
  /** The pages that are not shared. */
  own: boolean[] = [];
  length = 0;

  copy(): CowList<T> {
    const copy = new CowList<T>();
    copy.pages = this.pages.slice();
    copy.length = this.length;
    this.own = [];
    return copy;
  }

  get(index: number): T | undefined {
    const page = this.pages[index >> 6];
    return page === undefined ? undefined : page[index & 63];
  }

  set(index: number, item: T) {
    this.#writable(index >> 6)[index & 63] = item;
    if (index >= this.length) this.length = index + 1;
  }

  delete(index: number) {
    const number = index >> 6;
    const page = this.#writable(number);
    page[index & 63] = undefined;
    if (page.every((item) => item === undefined)) this.pages[number] = undefined;
  }

  push(item: T) {
    this.set(this.length, item);
  }

  /**
   * Removes an item, which is fast near the end; later items move down.
   *
   * @returns whether the list had it
   */
  take(item: T): boolean {
    let at = this.length - 1;
    while (at >= 0 && this.get(at) !== item) at--;
    if (at < 0) return false;
    this.length--;
    for (; at < this.length; at++) this.set(at, this.get(at + 1) as T);
    return true;
  }

  /** All items, by index. */
  list(): T[] {
    const items: T[] = [];
    for (let index = 0; index < this.length; index++) {
      const page = this.pages[index >> 6];
      if (page === undefined) index |= 63;
      else {
        const item = page[index & 63];
        if (item !== undefined) items.push(item);
      }
    }
    return items;
  }

  #writable(number: number): (T | undefined)[] {
    const page = this.pages[number];
    if (page !== undefined && this.own[number]) return page;
    this.own[number] = true;
    return (this.pages[number] = page === undefined ? new Array(64).fill(undefined) : page.slice());
  }
}
