/** Typed arrays that grow, for one number per event or step, and the search in what is sorted. */

/**
 * The array itself if it is long enough, else a longer one with the same beginning.
 *
 * @param length the least length
 * @param all the length that it will have in the end, if that is known
 */
export function roomFor<T extends Int32Array | Uint32Array | Uint8Array | Float64Array>(
  column: T,
  length: number,
  all = 0,
): T {
  if (length <= column.length) return column;
  const longer = new (column.constructor as any)(length <= all ? all : Math.max(64, 2 * length));
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

const WHOLE = [Uint8Array, Uint16Array, Int32Array];

/** Whole numbers from 0 on, in the smallest typed array that has them all: most counts of a long log take a byte. */
export class Integers {
  #width = 0;
  values = new Uint8Array(64) as ArrayLike<number> as Int32Array;

  /** @param all the length that it will have in the end, if that is known */
  set(index: number, value: number, all?: number) {
    const width = value < 256 ? 0 : value < 65536 ? 1 : 2;
    if (width > this.#width) {
      this.#width = width;
      this.values = WHOLE[width].from(this.values) as Int32Array;
    }
    this.values = roomFor(this.values, index + 1, all);
    this.values[index] = value;
  }

  /** Sets several, from an index on. */
  put(index: number, values: ArrayLike<number>, all?: number) {
    let most = 0;
    for (const value of values as number[]) if (value > most) most = value;
    this.set(index + values.length - 1, most, all);
    if (most) this.values.set(values, index); // memory that is never written takes no room
  }
}

type Pair = readonly [number, number];

/** Pairs of whole numbers, a list of them for each row. Rows are set in order; the last one may be set again. */
export class PairLists {
  #rows = 0;
  #ends = new Integers();
  #pairs = [new Integers(), new Integers()];

  set(row: number, pairs: Pair[], all?: number) {
    let end = this.#end(row - 1);
    for (; this.#rows < row; this.#rows++) this.#ends.set(this.#rows, end, all);
    for (const pair of pairs) {
      for (const place of [0, 1]) this.#pairs[place].set(end, pair[place]);
      end++;
    }
    this.#ends.set(row, end, all);
    this.#rows = row + 1;
  }

  at(row: number): Pair[] {
    const [first, second] = this.#pairs;
    const pairs: Pair[] = [];
    for (let at = this.#end(row - 1); row < this.#rows && at < this.#end(row); at++)
      pairs.push([first.values[at], second.values[at]]);
    return pairs;
  }

  #end(row: number) {
    return row < 0 ? 0 : this.#ends.values[Math.min(row, this.#rows - 1)] || 0;
  }
}

const NAMES: (string | undefined)[] = [undefined];

/** Strings of which there are few, such as reasons, as numbers; 0 is none. */
export const numberOf = (name?: string) =>
  NAMES.includes(name) ? NAMES.indexOf(name) : NAMES.push(name) - 1;
export const nameOf = (number: number) => NAMES[number];

/** The head of the queue by step or pass, and why it waited. */
export class BlockedHeads {
  #columns = [new Integers(), new Integers()];

  set(index: number, [head, reason]: readonly [number, string, ...unknown[]], all?: number) {
    this.#columns[0].set(index, head + 1, all);
    this.#columns[1].set(index, numberOf(reason), all);
  }

  at(index: number): [head: number, reason: string] | null {
    const [head, reason] = this.#columns.map(({ values }) => values[index]);
    return head ? [head - 1, nameOf(reason) as string] : null;
  }
}
