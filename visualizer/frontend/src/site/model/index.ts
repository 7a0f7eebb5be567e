/**
 * The bundled model in the page: about 300 lines of JavaScript and a matrix product in WebAssembly. Start reading at
 * `decoder.ts`. The engine is the real one, in Python; `site/runtime/page_model.py` connects the two.
 */

import { makeBatch } from "./batch.ts";
import { type Config, Decoder } from "./decoder.ts";
import type { KVCache } from "./kv_cache.ts";
import { summarize } from "./logits.ts";
import { readSafetensors } from "./safetensors.ts";

export type PageModel = ReturnType<typeof loadModel>;

/**
 * Loads a model of the Qwen3 architecture with tied embeddings.
 *
 * @param weights a safetensors file
 * @param config its config.json
 */
export function loadModel(weights: ArrayBuffer, config: Config) {
  const tensors = readSafetensors(weights);
  const decoder = new Decoder(tensors, config);
  const sizes = [...tensors.values()].map((tensor) => tensor.values.length);
  return {
    parameters: sizes.reduce((sum, size) => sum + size, 0),
    /** Returns KV memory. */
    newCache: (blocks: number, blockSize: number) => decoder.newCache(blocks, blockSize),
    /** Computes a step; see `batch.ts` for the arguments. */
    forward(cache: KVCache, ...arrays: Parameters<typeof makeBatch>) {
      const logits = decoder.forward(cache, makeBatch(...arrays)).slice();
      return { logits, ...summarize(logits, config.vocab_size) };
    },
  };
}
