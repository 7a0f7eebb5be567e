/** Which events each step has: columns, because a long log has a million steps. */

import { firstWhere, roomFor } from "./columns.ts";
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

const NOT_SCHEDULED = -1;

/** The steps of a log. Each one's events follow those of the step before; only the last one changes. */
export class StepTable {
  first = 1; // number of the first step
  length = 0;
  /** The last step. */
  last: StepInfo | undefined;
  #from = new Int32Array(64);
  #scheduled = new Int32Array(64);
  #status = new Uint8Array(64);

  push(info: StepInfo) {
    if (this.last) this.#keep(this.length - 1, this.last);
    else this.first = info.step;
    this.last = info;
    this.length++;
  }

  /** Takes some steps from an index. */
  restore({ step, first, last, status, scheduled: at }: Facts["steps"], lastStep: number) {
    const info = (i: number): StepInfo => ({
      step: step[i],
      from: first[i],
      to: last[i],
      status: status[i] as Status,
      scheduled: (at[i] as number) >= 0 ? at[i] : null,
    });
    const [from, end] = [this.length, step.length - 1];
    this.push(info(0));
    this.length += end;
    this.#makeRoom(this.length, lastStep + 1 - this.first);
    this.#from.set(first, from);
    for (let i = 0; i <= end; i++) {
      this.#scheduled[from + i] = info(i).scheduled ?? NOT_SCHEDULED;
      this.#status[from + i] = STATUSES.indexOf(status[i] as Status);
    }
    this.last = info(end);
  }

  at(index: number): StepInfo | undefined {
    if (index === this.length - 1) return this.last;
    if (!(index >= 0 && index < this.length)) return undefined;
    const scheduled = this.#scheduled[index];
    return {
      step: this.first + index,
      from: this.#from[index],
      to: this.#fromOf(index + 1) - 1,
      status: STATUSES[this.#status[index]],
      scheduled: scheduled === NOT_SCHEDULED ? null : scheduled,
    };
  }

  /** The index of the step that an event belongs to, -1 if that comes before all steps. */
  indexOf(seq: number) {
    return firstWhere(this.length, (index) => this.#fromOf(index) > seq) - 1;
  }

  #fromOf(index: number) {
    return index === this.length - 1 ? (this.last as StepInfo).from : this.#from[index];
  }

  #keep(index: number, { from, status, scheduled }: StepInfo) {
    this.#makeRoom(index + 1);
    this.#from[index] = from;
    this.#scheduled[index] = scheduled ?? NOT_SCHEDULED;
    this.#status[index] = STATUSES.indexOf(status);
  }

  /** @param all how many steps there will be in the end, if that is known */
  #makeRoom(length: number, all?: number) {
    this.#from = roomFor(this.#from, length, all);
    this.#scheduled = roomFor(this.#scheduled, length, all);
    this.#status = roomFor(this.#status, length, all);
  }
}
