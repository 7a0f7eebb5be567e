/** Translates a trace of another engine into our own log: the Python readers, in a worker of this page. */

import { runPython } from "./page_kernel.ts";

const SOURCE = `
from page_open import open_file
open_file("/tmp/trace")
`;

/** The log in a file of another engine, packed, or why it cannot be read. */
export async function translate(
  bytes: Uint8Array,
  onPhase: (words: string) => void,
): Promise<{ log: Uint8Array; isCluster: boolean; note: string } | { refusal: string }> {
  try {
    const output = await runPython(SOURCE, { files: { "/tmp/trace": bytes }, onPhase });
    return {
      log: output.log as Uint8Array,
      isCluster: output.module === "cluster",
      note: output.text ?? "",
    };
  } catch (error) {
    return { refusal: (error as Error).message };
  }
}
