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

import { roomFor } from "./columns.ts";
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
  #columns = [
    ...COUNTS.map((name) => ({ name, values: new Int32Array(64) })),
    ...TIMES.map((name) => ({ name, values: new Float64Array(64) })),
  ];
  #chunks: Map<number, Chunk[]> = new Map();
  #computed: Map<number, number[]> = new Map();
  firstStep = 1;
  length = 0;

  constructor() {
    this.publish();
  }

  /** Tokens of prefill and catch-up rows in a step. */
  chunks(step: number) {
    return this.#chunks.get(step) ?? [];
  }

  /**
   * Asynchronous scheduling: the steps whose forward pass was running, or ended, while a step was scheduled. This is
   * the step before; none if no pass was running; and also the step itself if no other step followed at once.
   */
  computed(step: number) {
    return this.#computed.get(step) ?? [];
  }

  /** Adds `pass`, a step, to those that were computed while `step` was scheduled. */
  addComputed(step: number, pass: number) {
    const known = this.computed(step);
    if (!known.includes(pass)) this.#computed.set(step, [...known, pass]);
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
    for (const { name, values } of this.#columns) {
      if (name in times) values[index] = times[name as keyof typeof times];
      if (name === "end" && Number.isNaN(values[index])) values[index] = times.launched;
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
    for (const column of this.#columns) {
      column.values = roomFor(column.values, index + 1);
      column.values[index] = values[column.name];
    }
    if (chunks.length) this.#chunks.set(step, chunks);
  }

  /** Takes the measures of some steps from an index. */
  restore({ step, counts, times, chunks, computed }: Facts["steps"], lastStep: number) {
    const from = step[0] - this.firstStep;
    this.length = from + step.length;
    const columns = [...counts, ...times] as number[][]; // NaN for a time that the log does not have
    for (const [number, column] of this.#columns.entries()) {
      column.values = roomFor(column.values, this.length, lastStep + 1 - this.firstStep);
      column.values.set(columns[number], from);
    }
    for (let i = 0; i < step.length; i++) {
      if (chunks[i].length)
        this.#chunks.set(
          step[i],
          chunks[i].map(([request, count]) => ({ request, count })),
        );
      if (computed[i].length) this.#computed.set(step[i], computed[i]);
    }
  }

  /** Publishes the arrays with one value per step. */
  publish() {
    const arrays = this.#columns.map(({ name, values }) => [name, values.subarray(0, this.length)]);
    Object.assign(this, Object.fromEntries(arrays));
  }
}
