/**
 * The measures that the strip draws, one value per step, in typed arrays with index `step - firstStep`.
 *
 * Blocks: used = shared + unshared, and used + cached + free is all of memory. Tokens: prefill + catchup +
 * decode. `happened` has the bits of `happenings.ts`,
 * `suspended` the waiting requests that were preempted, `seats` those taken when the step was scheduled,
 * `reach` how many blocks have been used so far, counted from block 0, `guessing` the rows with drafts, `drafted` and
 * `accepted` their drafts, `host` and `disk` the tokens fetched from there. Times in microseconds, NaN if the log has none; `drafting` is a duration.
 *
 * With asynchronous scheduling a step is scheduled while the one before is computed. Then `start` to `end` is the
 * time from the start of its scheduling to the tokens of the step before, `start` to `scheduled` its own
 * scheduling, and `launched` to `ready` its own forward pass, which begins after `end`.
 */

import { Integers, PairLists, roomFor } from "./columns.ts";
import type { Facts } from "./events.ts";

/** Tokens of a prefill or catch-up row. */
export type Chunk = { request: number; count: number };

/** The words of a text, as types too. */
const words = <Text extends string>(text: Text) => text.split(" ") as Words<Text>[];

type Words<Text> = Text extends `${infer First} ${infer Rest}` ? First | Words<Rest> : Text;

const COUNTS = [
  ...words("used shared cached free"),
  ...words("tokens prefill catchup decode rows output"),
  ...words("running waiting preempted evicted found happened suspended seats reach"),
  ...words("guessing drafted accepted host disk"),
];
const TIMES = words("start scheduled end launched ready drafting");
export type CountName = (typeof COUNTS)[number];
export type TimeName = (typeof TIMES)[number];
export type MeasureArrays = Record<CountName, Int32Array> & Record<TimeName, Float64Array>;

/** The measures of a step before its first event. */
export const NOTHING: Record<CountName | TimeName, number> = Object.fromEntries([
  ...COUNTS.map((name) => [name, 0]),
  ...TIMES.map((name) => [name, NaN]),
]);

export class Measures {
  #counts = COUNTS.map((name) => ({ name, column: new Integers() }));
  /** Of the times that few logs have, those that no step has stay empty. */
  #times = TIMES.map((name, i) => ({ name, values: new Float64Array(i < 3 ? 64 : 0) }));
  #chunks = new PairLists();
  /** Bit k of a step's number: the pass of the step k before it. */
  #computed = new Integers();
  firstStep = 1;
  length = 0;

  constructor() {
    this.publish();
  }

  /** Tokens of prefill and catch-up rows in a step. */
  chunks(step: number): Chunk[] {
    const pairs = this.#chunks.at(step - this.firstStep);
    return pairs.map(([request, count]) => ({ request, count }));
  }

  /**
   * Asynchronous scheduling: the steps whose forward pass was running, or ended, while a step was scheduled. This is
   * the step before; none if no pass was running; and also the step itself if no other step followed at once.
   */
  computed(step: number) {
    const bits = this.#computed.values[step - this.firstStep];
    const passes: number[] = [];
    for (let back = 0; bits >> back; back++) if ((bits >> back) & 1) passes.unshift(step - back);
    return passes;
  }

  /** Adds `pass`, a step, to those that were computed while `step` was scheduled. */
  addComputed(step: number, pass: number, all?: number) {
    const index = step - this.firstStep;
    const bits = this.#computed.values[index] || 0;
    this.#computed.set(index, bits | (1 << (step - pass)), all);
  }

  /**
   * Sets times of a step that is recorded: with asynchronous scheduling they arrive during the next one. If no tokens
   * ended the step, because none was computed meanwhile, the launch of its own pass did.
   */
  setTimes(
    step: number,
    times: { start: number; scheduled: number; launched: number; ready: number },
  ) {
    const index = step - this.firstStep;
    if (index < 0 || index >= this.length) return;
    const own: Record<string, number> = times;
    for (const column of this.#times) {
      if (column.name in own) put(column, index, [own[column.name]]);
      if (column.name === "end" && !(column.values[index] >= 0))
        put(column, index, [times.launched]);
    }
  }

  /**
   * Sets one step's values.
   *
   * @param values those that `NOTHING` has
   */
  record(step: number, values: Record<string, number>, chunks: Chunk[]) {
    const index = step - this.firstStep;
    this.length = Math.max(this.length, index + 1);
    for (const { name, column } of this.#counts) column.set(index, values[name]);
    for (const column of this.#times) put(column, index, [values[column.name]]);
    const pairs = chunks.map(({ request, count }) => [request, count] as const);
    this.#chunks.set(index, pairs);
  }

  /** Takes the measures of some steps from an index. */
  restore({ step, counts, times, chunks, computed }: Facts["steps"], lastStep: number) {
    const all = lastStep + 1 - this.firstStep;
    const from = step[0] - this.firstStep;
    this.length = from + step.length;
    for (const [number, { column }] of this.#counts.entries())
      column.put(from, counts[number], all);
    for (const [number, column] of this.#times.entries())
      put(column, from, times[number] as number[], all); // NaN for a time that the log does not have
    step.forEach((number, i) => {
      const pairs = chunks.at(i) as [number, number][];
      if (pairs.length) this.#chunks.set(from + i, pairs, all);
      for (const pass of computed.at(i) as number[]) this.addComputed(number, pass, all);
    });
  }

  /** Publishes the arrays with one value per step. */
  publish() {
    const counts = this.#counts.map(({ name, column }) => ({ name, values: column.values }));
    const arrays = [...counts, ...this.#times].map(({ name, values }) => [
      name,
      values.subarray(0, this.length),
    ]);
    Object.assign(this, Object.fromEntries(arrays));
  }
}

/** Sets some times from an index on; NaN is not set before the first time of a column. */
function put(column: { values: Float64Array }, index: number, times: number[], all?: number) {
  const { length } = column.values;
  if (!length && times.every(Number.isNaN)) return;
  column.values = roomFor(column.values, index + times.length, all);
  column.values.fill(NaN, length);
  column.values.set(times, index);
}
