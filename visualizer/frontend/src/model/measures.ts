/**
 * The measures that the strip draws: a column each, with a number per step at index `step - firstStep`.
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

import { Numbers, PairLists } from "./columns.ts";
import type { Facts } from "./events.ts";
import type { Lists } from "./indexed_events.ts";

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
export type MeasureColumns = Record<CountName | TimeName, Numbers>;

/** The measures of a step before its first event. */
export const NOTHING: Record<CountName | TimeName, number> = Object.fromEntries([
  ...COUNTS.map((name) => [name, 0]),
  ...TIMES.map((name) => [name, NaN]),
]);

export class Measures {
  #counts = COUNTS.map((name) => ({ name, column: new Numbers() }));
  #times = TIMES.map((name) => ({ name, column: new Numbers(NaN) }));
  #chunks = new PairLists();
  /** Bit k of a step's number: the pass of the step k before it. */
  #computed = new Numbers();
  firstStep = 1;
  length = 0;

  constructor() {
    for (const { name, column } of [...this.#counts, ...this.#times])
      Object.assign(this, { [name]: column });
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
    const bits = this.#computed.at(step - this.firstStep);
    const passes: number[] = [];
    for (let back = 0; bits >> back; back++) if ((bits >> back) & 1) passes.unshift(step - back);
    return passes;
  }

  /** Adds `pass`, a step, to those that were computed while `step` was scheduled. */
  addComputed(step: number, pass: number) {
    const index = step - this.firstStep;
    this.#computed.set(index, this.#computed.at(index) | (1 << (step - pass)));
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
    for (const { name, column } of this.#times) {
      if (name in own) column.set(index, own[name]);
      if (name === "end" && !(column.at(index) >= 0)) column.set(index, times.launched);
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
    for (const { name, column } of [...this.#counts, ...this.#times])
      column.set(index, values[name]);
    const pairs = chunks.map(({ request, count }) => [request, count] as const);
    this.#chunks.set(index, pairs);
  }

  /** Takes the measures of some steps from an index. */
  restore({ step, counts, times, chunks, computed }: Facts["steps"]) {
    const from = step[0] - this.firstStep;
    this.length = from + step.length;
    this.#counts.forEach(({ column }, i) => column.put(from, counts[i]));
    // NaN for a time that the log does not have
    this.#times.forEach(({ column }, i) => column.put(from, times[i] as number[]));
    this.#chunks.put(from, chunks as unknown as Lists);
    const bits = new Int32Array(step.length);
    const { ends, items } = computed as unknown as Lists;
    for (let i = 0, at = 0; i < ends.length; i++)
      for (; at < ends[i]; at++) bits[i] |= 1 << (step[i] - items?.at(at));
    this.#computed.put(from, bits);
  }
}
