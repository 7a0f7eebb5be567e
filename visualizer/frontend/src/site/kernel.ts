/** Python for one page: started at the first run, ended by Stop. */

import type { Output } from "./python.ts";
import type { Phase, Report, Task } from "./worker.ts";

/** how a cell ended */
interface Answer {
  ok: boolean;
  ms: number;
}

/** what the page says about Python */
export type Condition = Phase | { phase: "off" } | { phase: "broken"; why: string };

export class StoppedError extends Error {}

export class Kernel {
  onPhase: (condition: Condition) => void;
  worker: Worker | null = null;
  tasks: Map<
    number,
    {
      send: (output: Output) => void;
      resolve: (answer: Answer) => void;
      reject: (error: Error) => void;
    }
  > = new Map();
  count = 0;

  constructor({ onPhase }: Pick<Kernel, "onPhase">) {
    this.onPhase = onPhase;
  }

  /** Starts Python, unless it runs. */
  start() {
    if (this.worker) return;
    this.worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }) => this.hear(data);
    this.worker.onerror = (event) => this.fail(event.message || "its worker cannot be loaded");
  }

  /** Ends Python. Running cells end with a StoppedError. */
  stop() {
    this.end(new StoppedError("stopped"));
    this.onPhase({ phase: "off" });
  }

  /** Runs a cell's source; `send` gets its outputs as they come. */
  run(task: Omit<Task, "id">, send: (output: Output) => void): Promise<Answer> {
    this.start();
    this.count += 1;
    const id = this.count;
    return new Promise((resolve, reject) => {
      this.tasks.set(id, { send, resolve, reject });
      this.worker?.postMessage({ ...task, id });
    });
  }

  hear(report: Report) {
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

  fail(why: string) {
    this.end(new Error(`Python cannot be started: ${why}`));
    this.onPhase({ phase: "broken", why });
  }

  end(error: Error) {
    this.worker?.terminate();
    this.worker = null;
    for (const { reject } of this.tasks.values()) reject(error);
    this.tasks.clear();
  }
}
