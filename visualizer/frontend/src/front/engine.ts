/** The engine of the front page: Python in a worker, started while the visitor reads. */

import type { Output } from "../site/python.ts";
import { Run } from "./run.ts";

type Kernel = typeof import("../site/page_kernel.ts");

/** A request that the page sends; steps come as they are computed. */
export interface Asked {
  prompt: string;
  after: number; // the steps that the others have had
  onSteps: (lines: Uint8Array) => void;
}

export class Engine {
  #kernel: Promise<Kernel> | null = null;
  #ready: Promise<unknown> | null = null;
  isReady = false;

  /** Starts Python and loads the model, once. */
  start() {
    this.#ready ??= this.#run("page_front.load()\npage_cells.send({'kind': 'ready'})", {
      needsModel: true,
    }).then(
      () => {
        this.isReady = true;
      },
      (error) => {
        this.#ready = null; // the next question tries again
        throw error;
      },
    );
    return this.#ready;
  }

  /** Serves the visitor's request with the others'. */
  async ask({ prompt, after, onSteps }: Asked) {
    await this.#run(`page_front.front.ask(${JSON.stringify(prompt)}, ${after}, steps)`, {
      onOutput: ({ log }) => {
        if (log instanceof Uint8Array) onSteps(log);
      },
    });
  }

  /** Runs the last run again with a change: the run and the changed one, both with predicted times. */
  async change(settings: Record<string, unknown>): Promise<{ before: Run; after: Run }> {
    const logs: Uint8Array[] = [];
    let why = "";
    const source = `page_cells.send({"kind": "told", "text": page_front.front.change(json.loads(${JSON.stringify(JSON.stringify(settings))}), steps)})`;
    await this.#run(source, {
      onOutput: ({ log, text }) => {
        if (log instanceof Uint8Array) logs.push(log);
        why = text ?? why;
      },
    });
    if (logs.length < 2) throw new Error(why);
    return { before: Run.of(logs[0]), after: Run.of(logs[1]) };
  }

  async #run(
    source: string,
    options: { needsModel?: boolean; onOutput?: (output: Output) => void },
  ) {
    this.#kernel ??= import("../site/page_kernel.ts");
    const { runPython } = await this.#kernel;
    return runPython(`${IMPORTS}${source}\n`, options);
  }
}

const IMPORTS = `import json, page_cells, page_front
def steps(lines):
    page_cells.send({"kind": "steps", "log": lines})
`;

/** Whether the browser asks pages to load little. */
export const savesData = () =>
  Boolean((navigator as { connection?: { saveData?: boolean } }).connection?.saveData);

/** Starts the engine once the page has been drawn and the browser has nothing to do. */
export function startWhenIdle(engine: Engine) {
  if (savesData()) return;
  const start = () => engine.start().catch(() => {});
  const idle = window.requestIdleCallback ?? ((call: () => void) => setTimeout(call, 200));
  requestAnimationFrame(() => idle(start, { timeout: 2000 }));
}
