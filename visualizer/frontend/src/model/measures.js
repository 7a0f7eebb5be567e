/**
 * One number per step of everything the strip draws, in typed arrays: index is `step - firstStep`.
 *
 * Blocks: used = shared + unshared, and used + cached + free is all of memory. Tokens: prefill + catchup +
 * decode. Times in microseconds, NaN where the log has none.
 */

const COUNTS = [
  ..."used shared cached free".split(" "),
  ..."tokens prefill catchup decode rows output".split(" "),
  ..."running waiting preempted evicted found".split(" "),
];
const TIMES = ["start", "scheduled", "end"];
const NOTHING = Object.fromEntries([
  ...COUNTS.map((name) => [name, 0]),
  ...TIMES.map((name) => [name, NaN]),
]);

export class Measures {
  #buffers = Object.fromEntries([
    ...COUNTS.map((name) => [name, new Int32Array(64)]),
    ...TIMES.map((name) => [name, new Float64Array(64)]),
  ]);
  /** @type {Map<number, {request: number, count: number, kind: string}[]>} */
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
   * Sets one step's values; those not given are 0, or NaN for times.
   *
   * @param {number} step
   * @param {Record<string, number>} values
   * @param {{request: number, count: number, kind: string}[]} chunks
   */
  record(step, values, chunks) {
    const index = step - this.firstStep;
    this.length = Math.max(this.length, index + 1);
    for (const [name, buffer] of Object.entries(this.#buffers)) {
      if (index >= buffer.length) {
        const longer = new /** @type {any} */ (buffer.constructor)(2 * (index + 1));
        longer.set(buffer);
        this.#buffers[name] = longer;
      }
      this.#buffers[name][index] = values[name] ?? NOTHING[name];
    }
    if (chunks.length) this.#chunks.set(step, chunks);
  }

  /** Makes the arrays as long as there are steps. */
  publish() {
    for (const [name, buffer] of Object.entries(this.#buffers)) {
      this[name] = buffer.subarray(0, this.length);
    }
  }
}
