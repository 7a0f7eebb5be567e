/** Translates a trace of another engine into our own log: the Python readers, in a worker of this page. */

import { runPython } from "./page_kernel.js";

const SOURCE = `
from page_open import open_file
open_file("/tmp/trace")
`;

/**
 * The log in a file of another engine, packed, or why it cannot be read.
 *
 * @param {Uint8Array} bytes @param {(words: string) => void} onPhase
 * @returns {Promise<{log: Uint8Array, isCluster: boolean, note: string} | {refusal: string}>}
 */
export async function translate(bytes, onPhase) {
  try {
    const output = await runPython(SOURCE, { files: { "/tmp/trace": bytes }, onPhase });
    return {
      log: /** @type {Uint8Array} */ (output.log),
      isCluster: output.module === "cluster",
      note: output.text ?? "",
    };
  } catch (error) {
    return { refusal: /** @type {Error} */ (error).message };
  }
}
