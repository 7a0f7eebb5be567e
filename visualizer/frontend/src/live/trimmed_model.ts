/**
 * A live log grows without limit, a browser's memory does not. When the log is too long, a model of the same log
 * from a later step on replaces it. The new log begins with a keyframe, as the server's window does, and is
 * folded in small slices while the old model is still shown.
 */

import { Model } from "../model/index.ts";
import { keyframe } from "../model/keyframe.ts";

const SLICE = 400; // events

export class TrimmedModel {
  old: Model;
  next: number;
  model: Model;

  /** Starts at the step after which about `kept` events follow. */
  constructor(old: Model, kept: number) {
    this.old = old;
    const step = old.stepOf(old.firstSeq + old.events.length - kept);
    const state = old.stateAt(step);
    this.next = state.seq + 1;
    this.model = new Model([keyframe(state)]);
  }

  /** Works for some milliseconds; returns true once it has caught up. */
  advance(milliseconds: number) {
    const until = performance.now() + milliseconds;
    const { old, model } = this;
    while (performance.now() < until) {
      const events = old.eventsIn(this.next, this.next + SLICE - 1);
      if (!events.length) return true;
      model.append(events);
      this.next += events.length;
    }
    return false;
  }
}
