/**
 * The decoder: from token ids to logits, a score for each token of the vocabulary.
 *
 *     x = the tokens' embeddings
 *     in each layer   x += attention(norm(x))        tokens read earlier ones
 *                     x += feed-forward(norm(x))     each token by itself
 *     logits = embeddings x norm(x)
 */

import { attend, attentionArrays } from "./attention.ts";
import type { Batch, Row } from "./batch.ts";
import { swiglu } from "./feed_forward.ts";
import { KVCache } from "./kv_cache.ts";
import { norm } from "./norm.ts";
import { Rope } from "./rope.ts";
import type { Tensor } from "./safetensors.ts";
import { type Matrix, Workspace } from "./workspace.ts";

/** of a Hugging Face config.json, as far as the decoder reads it */
export interface Config {
  vocab_size: number;
  hidden_size: number;
  intermediate_size: number;
  num_hidden_layers: number;
  num_attention_heads: number;
  num_key_value_heads: number;
  head_dim: number;
  max_position_embeddings: number;
  rms_norm_eps: number;
  rope_theta: number;
}

export class Decoder {
  #workspace = new Workspace();
  #config;
  #heads;
  #rope;
  #embedding;
  #layers;
  #lastNorm;

  constructor(tensors: Map<string, Tensor>, config: Config) {
    this.#config = config;
    this.#heads = {
      heads: config.num_attention_heads,
      kvHeads: config.num_key_value_heads,
      size: config.head_dim,
    };
    this.#rope = new Rope(config.head_dim, config.rope_theta, config.max_position_embeddings);
    const tensor = (name: string) => {
      const found = tensors.get(`model.${name}.weight`);
      if (!found) throw new Error(`the weights have no tensor model.${name}.weight`);
      return found;
    };
    const matrix = (name: string) => this.#workspace.keep(tensor(name));
    const vector = (name: string) => tensor(name).values;
    this.#embedding = matrix("embed_tokens");
    this.#layers = Array.from({ length: config.num_hidden_layers }, (_, i) =>
      readLayer(`layers.${i}`, matrix, vector),
    );
    this.#lastNorm = vector("norm");
  }

  /** Returns KV memory for this model. */
  newCache(blocks: number, blockSize: number) {
    const { kvHeads: heads, size } = this.#heads;
    return new KVCache({ layers: this.#layers.length, heads, size }, blocks, blockSize);
  }

  /**
   * Computes a step: stores the keys and values of all its tokens, and returns the logits after the wanted ones, [wanted,
   * vocabulary]. The next step overwrites them.
   */
  forward(cache: KVCache, { ids, positions, rows, wanted }: Batch) {
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

function readLayer(
  prefix: string,
  matrix: (name: string) => Matrix,
  vector: (name: string) => Float32Array,
) {
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
 *
 * @param keys [tokens, size]
 * @param values [tokens, size]
 */
function storeAll(
  cache: KVCache,
  layer: number,
  rows: Row[],
  keys: Float32Array,
  values: Float32Array,
  size: number,
) {
  for (const { first, count, start, table } of rows)
    for (let i = 0; i < count; i += 1) {
      const from = (first + i) * size;
      const to = from + size;
      cache.store(layer, table, start + i, keys.subarray(from, to), values.subarray(from, to));
    }
}

function add(x: Float32Array, change: Float32Array) {
  for (let i = 0; i < x.length; i += 1) x[i] += change[i];
}
