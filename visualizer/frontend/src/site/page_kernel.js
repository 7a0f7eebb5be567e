/** Python for the pages that are no lessons: one kernel per page, started when it is first needed. */

/** @import { Output } from "./python.js" */
import { Kernel } from "./kernel.js";

/** @type {Record<string, string>} */
const PHASES = {
  python: "Starting Python",
  core: "Loading the engine",
  ready: "",
};

/** @type {(words: string) => void} */
let tell = () => {};

const kernel = new Kernel({
  newWorker: () => new Worker(new URL("./worker.js", import.meta.url), { type: "module" }),
  onPhase: ({ phase }) => PHASES[phase] && tell(`${PHASES[phase]} (once)`),
});

/**
 * Runs Python and returns its last output. Raises an Error with the message of an exception. `files` are written
 * before; `onPhase` is told what is being loaded.
 *
 * @param {string} source @param {{files?: Record<string, Uint8Array>, onPhase?: (words: string) => void}} [options]
 * @returns {Promise<Output>}
 */
export async function runPython(source, { files = {}, onPhase = () => {} } = {}) {
  tell = onPhase;
  /** @type {Output[]} */
  const outputs = [];
  const { ok } = await kernel.run({ cell: 0, source, isChanged: false, files }, (output) =>
    outputs.push(output),
  );
  const last = outputs.at(-1);
  if (ok && last) return last;
  throw new Error(last?.message ?? "Python has ended");
}
