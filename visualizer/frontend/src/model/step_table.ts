/** Which events each step has: columns, because a long log has a million steps. */

import { firstWhere, Numbers } from "./columns.ts";
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
  #from = new Numbers();
  /** How many events after the first one, and one more; 0: there is none. */
  #scheduled = new Numbers();
  #status = new Numbers();

  push(info: StepInfo) {
    if (!this.last) this.first = info.step;
    else {
      const { from, scheduled, status } = this.last;
      this.#from.set(this.length - 1, from);
      this.#scheduled.set(this.length - 1, after(from, scheduled));
      this.#status.set(this.length - 1, STATUSES.indexOf(status));
    }
    this.last = info;
    this.length++;
  }

  /** Takes some steps from an index. */
  restore({ step, first, last, status, scheduled }: Facts["steps"]) {
    if (!this.length) this.first = step[0];
    this.#from.put(this.length, first);
    const afters = new Int32Array(step.length);
    for (let i = 0; i < afters.length; i++) afters[i] = after(first[i], scheduled[i]);
    this.#scheduled.put(this.length, afters);
    const numbers = status.map((one) => STATUSES.indexOf(one as Status));
    this.#status.put(this.length, numbers);
    this.length += step.length;
    this.last = undefined;
    this.last = { ...(this.at(this.length - 1) as StepInfo), to: last[step.length - 1] };
  }

  at(index: number): StepInfo | undefined {
    if (this.last && index === this.length - 1) return this.last;
    if (!(index >= 0 && index < this.length)) return undefined;
    const from = this.#from.at(index);
    const later = this.#scheduled.at(index);
    return {
      step: this.first + index,
      from,
      to: this.#fromOf(index + 1) - 1,
      status: STATUSES[this.#status.at(index)],
      scheduled: later ? from + later - 1 : null,
    };
  }

  /** The index of the step that an event belongs to, -1 if that comes before all steps. */
  indexOf(seq: number) {
    return firstWhere(this.length, (index) => this.#fromOf(index) > seq) - 1;
  }

  #fromOf(index: number) {
    return this.last && index === this.length - 1 ? this.last.from : this.#from.at(index);
  }
}

/** What is stored of the event that scheduled a step, which may be missing. */
const after = (from: number, scheduled: number | null) =>
  Number(scheduled) >= from ? (scheduled as number) - from + 1 : 0;
