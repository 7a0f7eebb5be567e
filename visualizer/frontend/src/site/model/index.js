/**
 * The bundled model in the page: about 300 lines of JavaScript and a matrix product in WebAssembly. Start reading at
 * `decoder.js`. The engine is the real one, in Python; `site/runtime/page_model.py` connects the two.
 */

import { makeBatch } from "./batch.js";
import { Decoder } from "./decoder.js";
import { summarize } from "./logits.js";
import { readSafetensors } from "./safetensors.js";

/** @typedef {ReturnType<typeof loadModel>} PageModel */

/**
 * Loads a model of the Qwen3 architecture with tied embeddings.
 * @param {ArrayBuffer} weights a safetensors file @param {import("./decoder.js").Config} config its config.json
 */
export function loadModel(weights, config) {
  const tensors = readSafetensors(weights);
  const decoder = new Decoder(tensors, config);
  const sizes = [...tensors.values()].map((tensor) => tensor.values.length);
  return {
    parameters: sizes.reduce((sum, size) => sum + size, 0),
    /** Returns KV memory. @param {number} blocks @param {number} blockSize */
    newCache: (blocks, blockSize) => decoder.newCache(blocks, blockSize),
    /**
     * Computes a step; see `batch.js` for the arguments.
     * @param {import("./kv_cache.js").KVCache} cache @param {Int32Array} ids @param {Int32Array} starts
     * @param {Int32Array} counts @param {Int32Array} tables @param {Int32Array} wanted
     */
    forward(cache, ids, starts, counts, tables, wanted) {
      const batch = makeBatch(ids, starts, counts, tables, wanted);
      const logits = decoder.forward(cache, batch).slice();
      return { logits, ...summarize(logits, config.vocab_size) };
    },
  };
}
