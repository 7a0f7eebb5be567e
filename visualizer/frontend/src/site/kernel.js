/** Python for one page: started at the first run, ended by Stop. */

/** @import { Output } from "./python.js" */
/** @import { Phase, Report, Task } from "./worker.js" */

/**
 * @typedef {object} Answer  how a cell ended
 * @property {boolean} ok
 * @property {number} ms
 *
 * @typedef {object} KernelOptions
 * @property {() => Worker} newWorker
 * @property {(phase: Phase | {phase: "off"} | {phase: "broken", why: string}) => void} onPhase
 */

export class StoppedError extends Error {}

export class Kernel {
  /** @param {KernelOptions} options */
  constructor({ newWorker, onPhase }) {
    this.newWorker = newWorker;
    this.onPhase = onPhase;
    /** @type {Worker | null} */
    this.worker = null;
    /** @type {Map<number, {send: (output: Output) => void, resolve: (answer: Answer) => void, reject: (error: Error) => void}>} */
    this.tasks = new Map();
    this.count = 0;
  }

  /** Starts Python, unless it runs. */
  start() {
    if (this.worker) return;
    this.worker = this.newWorker();
    this.worker.onmessage = ({ data }) => this.hear(data);
    this.worker.onerror = (event) => this.fail(event.message || "its worker cannot be loaded");
  }

  /** Ends Python. Running cells end with a StoppedError. */
  stop() {
    this.end(new StoppedError("stopped"));
    this.onPhase({ phase: "off" });
  }

  /**
   * Runs a cell's source; `send` gets its outputs as they come.
   *
   * @param {Omit<Task, "id">} task @param {(output: Output) => void} send @returns {Promise<Answer>}
   */
  run(task, send) {
    this.start();
    this.count += 1;
    const id = this.count;
    return new Promise((resolve, reject) => {
      this.tasks.set(id, { send, resolve, reject });
      this.worker?.postMessage({ ...task, id });
    });
  }

  /** @param {Report} report */
  hear(report) {
    if ("phase" in report) this.onPhase(report.phase);
    else if ("broken" in report) this.fail(report.broken);
    else {
      const task = this.tasks.get(report.id);
      if (!task) return;
      if ("output" in report) task.send(report.output);
      else {
        this.tasks.delete(report.id);
        task.resolve(report);
      }
    }
  }

  /** @param {string} why */
  fail(why) {
    this.end(new Error(`Python cannot be started: ${why}`));
    this.onPhase({ phase: "broken", why });
  }

  /** @param {Error} error */
  end(error) {
    this.worker?.terminate();
    this.worker = null;
    for (const { reject } of this.tasks.values()) reject(error);
    this.tasks.clear();
  }
}
