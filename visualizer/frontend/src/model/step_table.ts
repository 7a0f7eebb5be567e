/** Which events each step has: columns, because a long log has a million steps. */

import { firstWhere, Integers } from "./columns.ts";
import type { Facts } from "./events.ts";

const STATUSES = ["pending", "running", "finished", "joined"] as const;
export type Status = (typeof STATUSES)[number];

/** a step's events */
export interface StepInfo {
  step: number;
  from: number; // seq of the first
  to: number; // seq of the last; less than `from` if there is none
  status: Status;
  scheduled: number | null; // seq of its step_scheduled
}

/** The steps of a log. Each one's events follow those of the step before; only the last one changes. */
export class StepTable {
  first = 1; // number of the first step
  length = 0;
  /** The last step. */
  last: StepInfo | undefined;
  #from = new Integers();
  /** How many events after the first one, and one more; 0: there is none. */
  #scheduled = new Integers();
  #status = new Integers();

  /** @param lastStep of the whole log, if that is known */
  push(info: StepInfo, lastStep: number = 0) {
    if (this.last) this.#keep(this.length - 1, this.last, lastStep + 1 - this.first);
    else this.first = info.step;
    this.last = info;
    this.length++;
  }

  /** Takes some steps from an index. */
  restore({ step, first, last, status, scheduled: at }: Facts["steps"], lastStep: number) {
    step.forEach((number, i) => {
      const scheduled = (at[i] as number) >= 0 ? at[i] : null;
      const [from, to] = [first[i], last[i]];
      this.push({ step: number, from, to, status: status[i] as Status, scheduled }, lastStep);
    });
  }

  at(index: number): StepInfo | undefined {
    if (index === this.length - 1) return this.last;
    if (!(index >= 0 && index < this.length)) return undefined;
    const from = this.#from.values[index];
    const after = this.#scheduled.values[index];
    return {
      step: this.first + index,
      from,
      to: this.#fromOf(index + 1) - 1,
      status: STATUSES[this.#status.values[index]],
      scheduled: after ? from + after - 1 : null,
    };
  }

  /** The index of the step that an event belongs to, -1 if that comes before all steps. */
  indexOf(seq: number) {
    return firstWhere(this.length, (index) => this.#fromOf(index) > seq) - 1;
  }

  #fromOf(index: number) {
    return index === this.length - 1 ? (this.last as StepInfo).from : this.#from.values[index];
  }

  /** @param all how many steps there will be in the end, if that is known */
  #keep(index: number, { from, status, scheduled }: StepInfo, all: number) {
    this.#from.set(index, from, all);
    this.#scheduled.set(index, scheduled === null ? 0 : scheduled - from + 1, all);
    this.#status.set(index, STATUSES.indexOf(status), all);
  }
}
