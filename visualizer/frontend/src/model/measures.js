/**
 * The measures that the strip draws, one value per step, in typed arrays with index `step - firstStep`.
 *
 * Blocks: used = shared + unshared, and used + cached + free is all of memory. Tokens: prefill + catchup +
 * decode. `happened` has the bits of `happenings.js`. Times in microseconds, NaN if the log has none.
 *
 * @typedef {"used" | "shared" | "cached" | "free" | "tokens" | "prefill" | "catchup" | "decode" | "rows"
 *   | "output" | "running" | "waiting" | "preempted" | "evicted" | "found" | "happened"} CountName
 * @typedef {"start" | "scheduled" | "end"} TimeName
 * @typedef {Record<CountName, Int32Array> & Record<TimeName, Float64Array>} MeasureArrays
 * @typedef {{request: number, count: number, kind: string}} Chunk
 */

import { roomFor } from "./columns.js";

const COUNTS = [
  ..."used shared cached free".split(" "),
  ..."tokens prefill catchup decode rows output".split(" "),
  ..."running waiting preempted evicted found happened".split(" "),
];
const TIMES = ["start", "scheduled", "end"];

/** The measures of a step before its first event. @type {Record<CountName | TimeName, number>} */
export const NOTHING = Object.fromEntries([
  ...COUNTS.map((name) => [name, 0]),
  ...TIMES.map((name) => [name, NaN]),
]);

export class Measures {
  #columns = [
    ...COUNTS.map((name) => ({ name, values: new Int32Array(64) })),
    ...TIMES.map((name) => ({ name, values: new Float64Array(64) })),
  ];
  /** @type {Map<number, Chunk[]>} */
  #chunks = new Map();

  constructor() {
    this.firstStep = 1;
    this.length = 0;
    this.publish();
  }

  /** Tokens of prefill and catch-up rows in a step. @param {number} step */
  chunks(step) {
    return this.#chunks.get(step) ?? [];
  }

  /**
   * Sets one step's values.
   *
   * @param {number} step
   * @param {Record<string, number>} values  those that `NOTHING` has
   * @param {Chunk[]} chunks
   */
  record(step, values, chunks) {
    const index = step - this.firstStep;
    this.length = Math.max(this.length, index + 1);
    for (const column of this.#columns) {
      column.values = roomFor(column.values, index + 1);
      column.values[index] = values[column.name];
    }
    if (chunks.length) this.#chunks.set(step, chunks);
  }

  /** Publishes the arrays with one value per step. */
  publish() {
    const arrays = this.#columns.map(({ name, values }) => [name, values.subarray(0, this.length)]);
    Object.assign(this, Object.fromEntries(arrays));
  }
}
