/**
 * Reads a log into a model a few milliseconds at a time, so that the page stays responsive: the first
 * picture is drawn as soon as what it shows is there, and the rest comes while the reader looks at it.
 */

import { LogError, Model } from "../model/index.js";
import { piecesOf } from "./log_bytes.js";

const SLICE = 8; // ms of work before the page gets its turn
const SHORT = 20_000; // events that are read before anything is drawn: most logs are shorter
const PATIENT = 100_000; // events to wait for a preemption where nobody said what to show

export class LogReader {
  model = new Model();
  share = 0;
  done = false;
  /** What is wrong with the log; what comes before it is in the model. @type {Error | null} */
  error = null;
  #listeners = new Set();

  /** Begins to read; `wanted()` says whether it is to go on. */
  constructor(log, wanted = () => true) {
    this.#run(log, wanted);
  }

  /**
   * Resolves once there is enough to open a board at what it asks for, or all there is; calls `tell()`
   * whenever more has been read until then.
   */
  async until(opening, tell) {
    for (; !this.done && !isEnough(this.model, opening); tell()) await this.#news();
  }

  /** Calls `tell()` whenever more has been read; resolves after the last time. */
  async follow(tell) {
    while (!this.done) {
      await this.#news();
      tell();
    }
  }

  #news() {
    return new Promise((resolve) => this.#listeners.add(resolve));
  }

  async #run(log, wanted) {
    const { model } = this;
    let until = performance.now() + SLICE;
    try {
      for await (const { bytes, share } of piecesOf(log)) {
        model.read(bytes);
        this.share = Math.min(share, 0.99); // what was taken in is not yet read
        if (performance.now() < until) continue;
        this.#tell();
        await turn();
        if (!wanted()) break;
        until = performance.now() + SLICE;
      }
      model.end();
    } catch (error) {
      this.error = error instanceof LogError ? error : new Error(`it cannot be unpacked: ${error}`);
    }
    this.share = 1;
    this.done = true;
    this.#tell();
  }

  #tell() {
    const listeners = this.#listeners;
    this.#listeners = new Set();
    for (const listener of listeners) listener();
  }
}

/** Whether a board can open at what it asks for, or at what a reader should see first. */
function isEnough(model, { step, selected, range, window }) {
  if (model.events.length < SHORT) return false;
  if (step == null) {
    const at = model.measures.preempted.findIndex((count) => count > 0);
    return (at >= 0 && at + 1 < model.stepCount) || model.events.length >= PATIENT;
  }
  const last = Math.max(step, ...(range ?? []), ...(window ?? []));
  return model.lastStep > last && (selected == null || !!model.request(selected));
}

/** Lets whatever else waits have its turn; a timer would take four milliseconds or, hidden, a second. */
function turn() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
