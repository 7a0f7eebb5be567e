/** Python for the pages that are no lessons: one kernel per page, started when it is first needed. */

import { Kernel } from "./kernel.ts";
import type { Output } from "./python.ts";

const PHASES: Record<string, string> = {
  python: "Starting Python",
  core: "Loading the engine",
  ready: "",
};

let tell: (words: string) => void = () => {};

const kernel = new Kernel({
  onPhase: ({ phase }) => PHASES[phase] && tell(`${PHASES[phase]} (once)`),
});

/**
 * Runs Python and returns its last output. Raises an Error with the message of an exception. `files` are written
 * before; `onPhase` is told what is being loaded.
 */
export async function runPython(
  source: string,
  {
    files = {},
    needsModel = false,
    onPhase = () => {},
    onOutput = () => {},
  }: {
    files?: Record<string, Uint8Array>;
    needsModel?: boolean;
    onPhase?: (words: string) => void;
    onOutput?: (output: Output) => void;
  } = {},
): Promise<Output> {
  tell = onPhase;
  const outputs: Output[] = [];
  const { ok } = await kernel.run(
    { cell: 0, source, isChanged: false, files, needsModel },
    (output) => {
      outputs.push(output);
      onOutput(output);
    },
  );
  const last = outputs.at(-1);
  if (ok && last) return last;
  throw new Error(last?.message ?? "Python has ended");
}
