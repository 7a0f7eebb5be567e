/**
 * The decoder: from token ids to logits, a score for each token of the vocabulary.
 *
 *     x = the tokens' embeddings
 *     in each layer   x += attention(norm(x))        tokens read earlier ones
 *                     x += feed-forward(norm(x))     each token by itself
 *     logits = embeddings x norm(x)
 *
 * @typedef {object} Config  of a Hugging Face config.json, as far as the decoder reads it
 * @property {number} vocab_size
 * @property {number} hidden_size
 * @property {number} intermediate_size
 * @property {number} num_hidden_layers
 * @property {number} num_attention_heads
 * @property {number} num_key_value_heads
 * @property {number} head_dim
 * @property {number} max_position_embeddings
 * @property {number} rms_norm_eps
 * @property {number} rope_theta
 *
 * @typedef {import("./workspace.js").Matrix} Matrix
 * @typedef {ReturnType<typeof readLayer>} Layer
 */

import { attend, attentionArrays } from "./attention.js";
import { swiglu } from "./feed_forward.js";
import { KVCache } from "./kv_cache.js";
import { norm } from "./norm.js";
import { Rope } from "./rope.js";
import { Workspace } from "./workspace.js";

export class Decoder {
  #workspace = new Workspace();
  #config;
  #heads;
  #rope;
  #embedding;
  #layers;
  #lastNorm;

  /** @param {Map<string, import("./safetensors.js").Tensor>} tensors @param {Config} config */
  constructor(tensors, config) {
    this.#config = config;
    this.#heads = {
      heads: config.num_attention_heads,
      kvHeads: config.num_key_value_heads,
      size: config.head_dim,
    };
    this.#rope = new Rope(config.head_dim, config.rope_theta, config.max_position_embeddings);
    /** @param {string} name */
    const tensor = (name) => {
      const found = tensors.get(`model.${name}.weight`);
      if (!found) throw new Error(`the weights have no tensor model.${name}.weight`);
      return found;
    };
    /** @param {string} name */
    const matrix = (name) => this.#workspace.keep(tensor(name));
    /** @param {string} name */
    const vector = (name) => tensor(name).values;
    this.#embedding = matrix("embed_tokens");
    this.#layers = Array.from({ length: config.num_hidden_layers }, (_, i) =>
      readLayer(`layers.${i}`, matrix, vector),
    );
    this.#lastNorm = vector("norm");
  }

  /** Returns KV memory for this model. @param {number} blocks @param {number} blockSize */
  newCache(blocks, blockSize) {
    const { kvHeads: heads, size } = this.#heads;
    return new KVCache({ layers: this.#layers.length, heads, size }, blocks, blockSize);
  }

  /**
   * Computes a step: stores the keys and values of all its tokens, and returns the logits after the wanted ones, [wanted,
   * vocabulary]. The next step overwrites them.
   * @param {KVCache} cache @param {import("./batch.js").Batch} batch
   */
  forward(cache, { ids, positions, rows, wanted }) {
    const { hidden_size, intermediate_size, vocab_size, rms_norm_eps: eps } = this.#config;
    const { heads, kvHeads, size } = this.#heads;
    const workspace = this.#workspace;
    const tokens = ids.length;
    const longest = Math.max(...rows.map((row) => row.start + row.count));
    const arrays = workspace.arrays({
      x: tokens * hidden_size,
      normed: tokens * hidden_size,
      queries: tokens * heads * size,
      newKeys: tokens * kvHeads * size,
      newValues: tokens * kvHeads * size,
      attended: tokens * heads * size,
      gate: tokens * intermediate_size,
      up: tokens * intermediate_size,
      change: tokens * hidden_size,
      last: wanted.length * hidden_size,
      logits: wanted.length * vocab_size,
      ...attentionArrays(this.#heads, longest),
    });
    const { x, normed, queries, newKeys, newValues, attended, gate, up, change, last } = arrays;
    ids.forEach((id, token) => x.set(workspace.row(this.#embedding, id), token * hidden_size));
    this.#layers.forEach((layer, index) => {
      norm(normed, x, layer.attentionNorm, eps);
      workspace.multiply(queries, layer.query, normed, tokens);
      workspace.multiply(newKeys, layer.key, normed, tokens);
      workspace.multiply(newValues, layer.value, normed, tokens);
      norm(queries, queries, layer.queryNorm, eps); // each head by itself
      norm(newKeys, newKeys, layer.keyNorm, eps);
      this.#rope.rotate(queries, positions, heads);
      this.#rope.rotate(newKeys, positions, kvHeads);
      storeAll(cache, index, rows, newKeys, newValues, kvHeads * size);
      attend(attended, queries, cache, index, rows, this.#heads, arrays, workspace);
      workspace.multiply(change, layer.output, attended, tokens);
      add(x, change);

      norm(normed, x, layer.feedForwardNorm, eps);
      workspace.multiply(gate, layer.gate, normed, tokens);
      workspace.multiply(up, layer.up, normed, tokens);
      swiglu(gate, up);
      workspace.multiply(change, layer.down, gate, tokens);
      add(x, change);
    });
    wanted.forEach((token, i) =>
      last.set(x.subarray(token * hidden_size, (token + 1) * hidden_size), i * hidden_size),
    );
    norm(last, last, this.#lastNorm, eps);
    if (wanted.length) workspace.multiply(arrays.logits, this.#embedding, last, wanted.length);
    return arrays.logits;
  }
}

/** @param {string} prefix @param {(name: string) => Matrix} matrix @param {(name: string) => Float32Array} vector */
function readLayer(prefix, matrix, vector) {
  return {
    attentionNorm: vector(`${prefix}.input_layernorm`),
    query: matrix(`${prefix}.self_attn.q_proj`),
    key: matrix(`${prefix}.self_attn.k_proj`),
    value: matrix(`${prefix}.self_attn.v_proj`),
    queryNorm: vector(`${prefix}.self_attn.q_norm`),
    keyNorm: vector(`${prefix}.self_attn.k_norm`),
    output: matrix(`${prefix}.self_attn.o_proj`),
    feedForwardNorm: vector(`${prefix}.post_attention_layernorm`),
    gate: matrix(`${prefix}.mlp.gate_proj`),
    up: matrix(`${prefix}.mlp.up_proj`),
    down: matrix(`${prefix}.mlp.down_proj`),
  };
}

/**
 * Stores the new keys and values of every row.
 * @param {KVCache} cache @param {number} layer @param {import("./batch.js").Row[]} rows
 * @param {Float32Array} keys [tokens, size] @param {Float32Array} values [tokens, size] @param {number} size
 */
function storeAll(cache, layer, rows, keys, values, size) {
  for (const { first, count, start, table } of rows)
    for (let i = 0; i < count; i += 1) {
      const from = (first + i) * size;
      const to = from + size;
      cache.store(layer, table, start + i, keys.subarray(from, to), values.subarray(from, to));
    }
}

/** @param {Float32Array} x @param {Float32Array} change */
function add(x, change) {
  for (let i = 0; i < x.length; i += 1) x[i] += change[i];
}
