/** Columns with a number per event or step, and the search in what is sorted. */

import type { Lists } from "./indexed_events.ts";

/**
 * The array itself if it is long enough, else a longer one with the same beginning.
 *
 * @param length the least length
 */
export function roomFor<T extends Uint32Array | Float64Array>(column: T, length: number): T {
  if (length <= column.length) return column;
  const longer = new (column.constructor as any)(Math.max(64, 2 * length));
  longer.set(column);
  return longer;
}

/** The first index from which on a condition holds, up to `length`, where it holds for none. */
export function firstWhere(length: number, holds: (index: number) => boolean) {
  let low = 0;
  for (let high = length; low < high; ) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Adds something to a cache and returns it; of more than `most`, the first goes. */
export function keep<Key, Value>(kept: Map<Key, Value>, key: Key, value: Value, most: number) {
  kept.set(key, value);
  if (kept.size > most) kept.delete(kept.keys().next().value as Key);
  return value;
}

const BITS = 12;
/** How many numbers a page has. */
const PAGE = 1 << BITS;
const LAST = PAGE - 1;
/** The values of a page whose numbers are all equal. */
const EQUAL = new Uint8Array(PAGE);
const SIZES = [Uint8Array, Uint16Array, Uint32Array];

/** Some successive numbers of a column: each is `base` and its value. */
interface Page {
  base: number;
  values: Uint8Array | Uint16Array | Uint32Array | Float64Array;
}

/** What can be read by index. */
export type Readable = Pick<Numbers, "at">;

/**
 * A column of numbers, one per step or event, in pages. A page has the smallest typed array for the differences from its
 * smallest number: times and numbers of events differ little within a page, and most counts of a long log take a byte or,
 * where they do not change, nothing.
 */
export class Numbers {
  length = 0;
  #pages: Page[] = [];
  /** The page that is being written, in numbers of 8 bytes. */
  #open = -1;
  #empty: number;

  /** @param empty what is read where nothing was set */
  constructor(empty: number = 0) {
    this.#empty = empty;
  }

  /** The number at an index; NaN outside the column. */
  at(index: number) {
    const page = this.#pages[index >> BITS];
    return page ? page.base + page.values[index & LAST] : NaN;
  }

  set(index: number, value: number) {
    this.put(index, [value]);
  }

  /** Sets several, from an index on. */
  put(index: number, numbers: ArrayLike<number>) {
    for (let from = 0, to: number; from < numbers.length; from = to) {
      const at = (index + from) & LAST;
      to = Math.min(numbers.length, from + PAGE - at);
      const some = to - from < numbers.length ? (numbers as number[]).slice(from, to) : numbers;
      this.#opened((index + from) >> BITS, at + some.length).set(some, at);
    }
    this.length = Math.max(this.length, index + numbers.length);
  }

  *[Symbol.iterator]() {
    for (let index = 0; index < this.length; index++) yield this.at(index);
  }

  /** The values of a page that is to be written, of which there are at least so many. */
  #opened(number: number, length: number) {
    const pages = this.#pages;
    if (this.#open !== number) {
      const before = pages[this.#open] && this.#grown(this.#open, PAGE).values;
      const isFree = before && pack(pages[this.#open]);
      while (pages.length <= number) pages.push({ base: this.#empty, values: EQUAL });
      const { base, values } = pages[number];
      // The first page of a short log is shorter than others.
      const all = isFree ? before : new Float64Array(pages.length > 1 ? PAGE : 64);
      if (values === EQUAL) all.fill(base);
      else for (let i = 0; i < PAGE; i++) all[i] = base + values[i];
      pages[number] = { base: 0, values: all };
      this.#open = number;
    }
    return this.#grown(number, length).values;
  }

  #grown(number: number, length: number) {
    const page = this.#pages[number];
    const { values } = page;
    if (length > values.length) {
      page.values = new Float64Array(Math.min(PAGE, 2 * length)).fill(this.#empty);
      page.values.set(values);
    }
    return page;
  }
}

/** Stores a page in the fewest bytes; false: one with fractions, or in which some times are missing, stays as it is. */
function pack(page: Page) {
  const { values } = page;
  let [least, most, isWhole] = [Infinity, -Infinity, true];
  for (let i = 0; i < PAGE; i++) {
    const value = values[i];
    if (value < least) least = value;
    if (value > most) most = value;
    if (value !== Math.floor(value)) isWhole = false;
  }
  const isEqual = most < least || (isWhole && most === least);
  const Size = isWhole && SIZES.find((one) => most - least < 256 ** one.BYTES_PER_ELEMENT);
  if (isEqual) page.values = EQUAL;
  else if (!Size) return false;
  else {
    const small = new Size(PAGE);
    for (let i = 0; i < PAGE; i++) small[i] = values[i] - least;
    page.values = small;
  }
  page.base = most < least ? NaN : least;
  return true;
}

/** The largest of some numbers from one index to another; 0 if none is larger. */
export function most(numbers: Readable, from: number, to: number) {
  let found = 0;
  for (let i = from; i <= to; i++) {
    const value = numbers.at(i);
    if (value > found) found = value;
  }
  return found;
}

type Pair = readonly [number, number];

/** Pairs of whole numbers, a list of them for each row. Rows are set in order; the last one may be set again. */
export class PairLists {
  #ends = new Numbers();
  #pairs = [new Numbers(), new Numbers()];

  set(row: number, pairs: Pair[]) {
    let end = this.#reach(row);
    for (const pair of pairs) {
      for (const place of [0, 1]) this.#pairs[place].set(end, pair[place]);
      end++;
    }
    this.#ends.set(row, end);
  }

  /** Sets several rows, whose second numbers are what `numberOf` says of those in the lists. */
  put(row: number, lists: Lists, numberOf = (value: any): number => value) {
    const { ends, items } = lists;
    if (!items?.columns) return;
    const before = this.#reach(row);
    const all = ends.map((end) => before + end);
    this.#ends.put(row, all);
    const [first, second] = items.columns;
    const count = ends[ends.length - 1];
    this.#pairs[0].put(
      before,
      numbersIn(count, (at) => first.at(at)),
    );
    this.#pairs[1].put(
      before,
      numbersIn(count, (at) => numberOf(second.at(at))),
    );
  }

  at(row: number): Pair[] {
    const [first, second] = this.#pairs;
    const pairs: Pair[] = [];
    for (let at = this.#end(row - 1); at < this.#end(row); at++)
      pairs.push([first.at(at), second.at(at)]);
    return pairs;
  }

  /** Sets the rows before one that have no pairs. Returns where its pairs begin. */
  #reach(row: number) {
    const end = this.#end(row - 1);
    const { length } = this.#ends;
    if (length < row) this.#ends.put(length, new Float64Array(row - length).fill(end));
    return end;
  }

  #end(row: number) {
    const { length } = this.#ends;
    return row < 0 || !length ? 0 : this.#ends.at(Math.min(row, length - 1));
  }
}

const numbersIn = (count: number, at: (index: number) => number) => {
  const numbers = new Float64Array(count);
  for (let i = 0; i < count; i++) numbers[i] = at(i);
  return numbers;
};

const NAMES: (string | undefined)[] = [undefined];

/** Strings of which there are few, such as reasons, as numbers; 0 is none. */
export const numberOf = (name?: string) =>
  NAMES.includes(name) ? NAMES.indexOf(name) : NAMES.push(name) - 1;
export const nameOf = (number: number) => NAMES[number];

/** The head of the queue by step or pass, and why it waited. */
export class BlockedHeads {
  #heads = new Numbers();
  #reasons = new Numbers(); // 0: none waited

  set(index: number, [head, reason]: readonly [number, string, ...unknown[]]) {
    this.#heads.set(index, head);
    this.#reasons.set(index, numberOf(reason));
  }

  /** Sets several, from an index on: one or none in each of the lists. */
  put(index: number, { ends, items }: Lists) {
    const [requests, why] = items?.columns ?? [];
    const heads = new Float64Array(ends.length);
    const reasons = new Uint8Array(ends.length);
    for (let i = 0, at = 0, head = this.#heads.at(index - 1) || 0; i < ends.length; i++) {
      if (ends[i] > at) {
        head = requests?.at(at);
        reasons[i] = numberOf(why?.at(at));
        at++;
      }
      heads[i] = head; // where none waits, too, because a page of similar numbers is small
    }
    this.#heads.put(index, heads);
    this.#reasons.put(index, reasons);
  }

  at(index: number): [head: number, reason: string] | null {
    const reason = this.#reasons.at(index);
    return reason > 0 ? [this.#heads.at(index), nameOf(reason) as string] : null;
  }
}
