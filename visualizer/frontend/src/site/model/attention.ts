/**
 * Attention: each token asks its own text, with a query, which earlier tokens matter to it. It compares the query with their
 * keys and mixes their values in proportion. Several query heads share a KV head (grouped-query attention).
 *
 *     scores = queries x keys / sqrt(head size)     a token sees itself and the tokens before it
 *     out    = softmax(scores) x values
 */

import type { Row } from "./batch.ts";
import type { KVCache } from "./kv_cache.ts";
import type { Workspace } from "./workspace.ts";

/** query heads, KV heads, values of a head */
type Heads = { heads: number; kvHeads: number; size: number };

const SLICE = 32; // tokens whose scores are computed at once, to limit their memory

/** Returns the smallest multiple of 4 that is not below a number. */
const padded = (length: number) => Math.ceil(length / 4) * 4;

/** Returns the lengths of the arrays that `attend` works with, for contexts of up to `longest` tokens. */
export function attentionArrays({ heads, kvHeads, size }: Heads, longest: number) {
  const queries = (SLICE * heads) / kvHeads;
  const width = padded(longest);
  return {
    keys: width * size,
    values: width * size,
    asked: queries * size,
    scores: queries * width,
    mixed: queries * size,
  };
}

/**
 * Attends from every token of the batch to its context, whose keys and values are in the cache.
 *
 * @param out [tokens, heads, head size]
 * @param queries of the same shape
 */
export function attend(
  out: Float32Array,
  queries: Float32Array,
  cache: KVCache,
  layer: number,
  rows: Row[],
  heads: Heads,
  arrays: Record<keyof ReturnType<typeof attentionArrays>, Float32Array>,
  workspace: Workspace,
) {
  const { keys, values, asked, scores, mixed } = arrays;
  const { size } = heads;
  const sharing = heads.heads / heads.kvHeads;
  for (const { first, count, start, table } of rows) {
    const context = start + count;
    const width = padded(context);
    for (let kvHead = 0; kvHead < heads.kvHeads; kvHead += 1) {
      cache.gather(layer, kvHead, table, context, keys, values, width);
      for (let token = 0; token < count; token += SLICE) {
        const tokens = Math.min(SLICE, count - token);
        // The query heads that share this KV head lie side by side in each token.
        const part = sharing * size;
        const places = Array.from(
          { length: tokens },
          (_, i) => ((first + token + i) * heads.kvHeads + kvHead) * part,
        );
        places.forEach((at, i) => asked.set(queries.subarray(at, at + part), i * part));
        const compared = { at: keys.byteOffset, rows: width, columns: size };
        workspace.multiply(scores, compared, asked, tokens * sharing);
        for (let i = 0; i < tokens * sharing; i += 1) {
          const visible = start + token + Math.floor(i / sharing) + 1;
          softmax(scores.subarray(i * width, (i + 1) * width), visible, 1 / Math.sqrt(size));
        }
        const weighed = { at: values.byteOffset, rows: size, columns: width };
        workspace.multiply(mixed, weighed, scores, tokens * sharing);
        places.forEach((at, i) => out.set(mixed.subarray(i * part, (i + 1) * part), at));
      }
    }
  }
}

/** Turns the first `visible` scores, times `scale`, into weights that add up to 1, and the others into 0. */
export function softmax(scores: Float32Array, visible: number, scale: number) {
  let highest = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < visible; i += 1) if (scores[i] > highest) highest = scores[i];
  let sum = 0;
  for (let i = 0; i < visible; i += 1) {
    scores[i] = Math.exp((scores[i] - highest) * scale);
    sum += scores[i];
  }
  for (let i = 0; i < visible; i += 1) scores[i] /= sum;
  scores.fill(0, visible);
}
