/**
 * The time in which the engine was paused and no forward pass ran: a held engine is not a slow one.
 * `engine/simulation/latencies.py` does the same.
 */

import type { LogEvent } from "./events.ts";

export class PausedTime {
  /** The pauses in order, in microseconds since the run started. */
  intervals: { begin: number; end: number }[] = [];
  /** When the current pause began. */
  #since: number | null = null;
  /** When the last forward pass ended. */
  #ready = 0;

  /** Adds the next event. */
  note(event: LogEvent) {
    switch (event.type) {
      case "keyframe":
        this.#since = event.state.paused ? 0 : null;
        break;
      case "engine_paused":
        this.#since = event.t?.at ?? null;
        break;
      case "engine_resumed":
        this.#add(event.t?.at ?? 0);
        this.#since = null;
        break;
      case "step_finished": {
        const { end, scheduled = end, launched = scheduled, ready = end } = event.t ?? {};
        if (end === undefined) return;
        this.#add(launched);
        this.#ready = ready;
        this.#remove(launched, ready);
      }
    }
  }

  /** How much of the time from `begin` to `end` it was. */
  between(begin: number, end: number) {
    let total = 0;
    for (const one of this.intervals)
      total += Math.max(0, Math.min(end, one.end) - Math.max(begin, one.begin));
    return total;
  }

  /** Adds the current pause up to now. */
  #add(until: number) {
    if (this.#since === null) return;
    const begin = Math.max(this.#since, this.#ready);
    if (begin >= until) return;
    this.intervals.push({ begin, end: until });
    this.#since = until;
  }

  /** Removes the time of a forward pass that was running when a pause ended. */
  #remove(begin: number, end: number) {
    const after = [];
    for (let last = this.intervals.at(-1); last && last.end > begin; last = this.intervals.at(-1)) {
      this.intervals.pop();
      if (last.end > end) after.push({ begin: Math.max(last.begin, end), end: last.end });
      if (last.begin < begin) after.push({ begin: last.begin, end: begin });
    }
    this.intervals.push(...after.reverse());
  }
}
