import assert from "node:assert/strict";
import { test } from "node:test";

import { makeBatch } from "../../src/site/model/batch.ts";
import { swiglu } from "../../src/site/model/feed_forward.ts";
import { KVCache } from "../../src/site/model/kv_cache.ts";
import { summarize } from "../../src/site/model/logits.ts";
import { norm } from "../../src/site/model/norm.ts";
import { Rope } from "../../src/site/model/rope.ts";
import { readSafetensors } from "../../src/site/model/safetensors.ts";
import { bundle } from "./bundled_model.js";

const { attend, attentionArrays, softmax, Workspace } = await bundle("attention", "workspace");

function close(actual, expected, tolerance = 1e-5) {
  assert.equal(actual.length, expected.length);
  actual.forEach((value, i) => {
    assert.ok(Math.abs(value - expected[i]) <= tolerance, `${i}: ${value}, not ${expected[i]}`);
  });
}

/** Numbers between -1 and 1 that look random and are the same in every run. */
function numbers(length, seed) {
  return Float32Array.from({ length }, (_, i) => Math.sin(12.9898 * i + 78.233 * seed));
}

function file(tensors) {
  const header = {};
  const parts = [];
  let at = 0;
  for (const [name, [dtype, shape, values]] of Object.entries(tensors)) {
    const bytes = new Uint8Array(values.buffer);
    header[name] = { dtype, shape, data_offsets: [at, at + bytes.length] };
    parts.push(bytes);
    at += bytes.length;
  }
  const text = new TextEncoder().encode(
    JSON.stringify({ __metadata__: { format: "pt" }, ...header }),
  );
  const size = new BigUint64Array([BigInt(text.length)]);
  return new Blob([size, text, ...parts]).arrayBuffer();
}

test("a safetensors file is read, float16 numbers bit by bit", async () => {
  const halves = Uint16Array.from([0x0000, 0x3c00, 0xc000, 0x3555, 0x0001, 0x7bff, 0x7c00]);
  const tensors = readSafetensors(
    await file({ a: ["F16", [7], halves], b: ["F32", [1, 2], Float32Array.from([0.1, -3])] }),
  );
  const exact = [0, 1, -2, 1365 / 4096, 2 ** -24, 65504, Number.POSITIVE_INFINITY];
  assert.deepEqual([...tensors.get("a").values], exact);
  assert.deepEqual(tensors.get("b"), { shape: [1, 2], values: Float32Array.from([0.1, -3]) });
});

test("weights of another type are refused by name", async () => {
  const eight = await file({ w: ["I8", [4], new Int8Array(4)] });
  assert.throws(() => readSafetensors(eight), /w has dtype I8; save the weights as F16 or F32/);
});

test("the norm divides each vector by its root mean square", () => {
  const out = new Float32Array(4);
  norm(out, Float32Array.from([3, 4, 0, -2]), Float32Array.from([1, 2]), 0);
  const [first, second] = [Math.sqrt(12.5), Math.sqrt(2)];
  close(out, [3 / first, 8 / first, 0, -4 / second]);
});

test("products of rotated queries and keys depend on their distance alone", () => {
  const rope = new Rope(8, 10_000, 64);
  const product = (p, q) => {
    const [query, key] = [numbers(8, 1), numbers(8, 2)];
    rope.rotate(query, Int32Array.from([p]), 1);
    rope.rotate(key, Int32Array.from([q]), 1);
    return query.reduce((sum, value, i) => sum + value * key[i], 0);
  };
  close([product(30, 23), product(63, 56)], [product(7, 0), product(7, 0)]);
  assert.ok(Math.abs(product(7, 0) - product(8, 0)) > 0.01);
});

test("a quarter turn swaps the pair", () => {
  const rope = new Rope(2, 1, 4);
  const x = Float32Array.from([1, 0, 1, 0]); // two heads
  rope.rotate(x, Int32Array.from([2]), 2);
  const turned = [Math.cos(2), Math.sin(2)];
  close(x, [...turned, ...turned]);
});

test("the gate lets a large value pass and stops a small one", () => {
  const gate = Float32Array.from([20, -20, 1]);
  swiglu(gate, Float32Array.from([3, 3, 2]));
  close(gate, [60, 0, 2 / (1 + Math.exp(-1))]);
});

test("a block is copied with all layers", () => {
  const cache = new KVCache({ layers: 2, heads: 1, size: 4 }, 3, 2);
  const table = Int32Array.from([2, 0]);
  const [keys, values] = [numbers(4, 1), numbers(4, 2)];
  cache.store(1, table, 1, keys, values); // block 2, second slot
  cache.copy(2, 1);
  assert.deepEqual([...cache.read(1)], [...cache.read(2)]);
  assert.deepEqual([...cache.read(1).slice(-8)], [...keys, ...values]);
  assert.ok(cache.read(0).every((value) => value === 0));
  assert.throws(() => cache.write(0, keys), /a page has 32 numbers, got 4/);
});

test("the matrix product is that of the definition, whatever the sizes", () => {
  for (const [tokens, rows, columns] of [
    [1, 4, 4],
    [3, 8, 12],
    [5, 64, 192],
  ]) {
    const workspace = new Workspace();
    const [weights, vectors] = [numbers(rows * columns, 1), numbers(tokens * columns, 2)];
    const matrix = workspace.keep({ shape: [rows, columns], values: weights });
    const { x, out } = workspace.arrays({ x: tokens * columns, out: tokens * rows });
    x.set(vectors);
    workspace.multiply(out, matrix, x, tokens);
    const expected = Array.from({ length: tokens * rows }, (_, i) => {
      const [token, row] = [Math.floor(i / rows), i % rows];
      let sum = 0;
      for (let c = 0; c < columns; c += 1)
        sum += weights[row * columns + c] * vectors[token * columns + c];
      return sum;
    });
    close(out, expected, 1e-4);
  }
});

test("weights survive when the workspace grows", () => {
  const workspace = new Workspace();
  const matrix = workspace.keep({ shape: [4, 4], values: numbers(16, 3) });
  workspace.arrays({ large: 1_000_000 }).large.fill(7);
  assert.deepEqual([...workspace.row(matrix, 2)], [...numbers(16, 3).slice(8, 12)]);
  assert.throws(
    () => workspace.keep({ shape: [3, 4], values: numbers(12, 1) }),
    /a matrix of 3 x 4: both sizes must be multiples of 4/,
  );
});

test("softmax leaves out what is not visible", () => {
  const scores = Float32Array.from([0, 2, Number.NaN, 9]);
  softmax(scores, 2, 0.5);
  close(scores, [1 / (1 + Math.E), Math.E / (1 + Math.E), 0, 0]);
});

test("attention reads a text through its block table, and no other text", () => {
  const heads = { heads: 4, kvHeads: 2, size: 8 };
  const workspace = new Workspace();
  const cache = new KVCache({ layers: 1, heads: 2, size: 8 }, 8, 4);
  cache.read(3).fill(Number.NaN); // a slot that nothing was written to holds garbage
  const tables = [Int32Array.from([5, 3]), Int32Array.from([0, 1])];
  const [contexts, counts] = [
    [6, 3],
    [2, 3],
  ]; // a chunk of a prompt, and a whole prompt
  const stored = tables.map((table, row) =>
    Array.from({ length: contexts[row] }, (_, position) => {
      const kv = {
        keys: numbers(16, 10 * row + position),
        values: numbers(16, 50 * row + position),
      };
      cache.store(0, table, position, kv.keys, kv.values);
      return kv;
    }),
  );
  const starts = contexts.map((context, row) => context - counts[row]);
  const { rows } = makeBatch(
    new Int32Array(5),
    Int32Array.from(starts),
    Int32Array.from(counts),
    Int32Array.from([...tables[0], ...tables[1]]),
    new Int32Array(),
  );
  const arrays = workspace.arrays({ ...attentionArrays(heads, 6), queries: 5 * 32, out: 5 * 32 });
  arrays.queries.set(numbers(160, 9));
  attend(arrays.out, arrays.queries, cache, 0, rows, heads, arrays, workspace);
  const expected = [];
  for (const [row, { first, count, start }] of rows.entries())
    for (let token = 0; token < count; token += 1)
      for (let head = 0; head < 4; head += 1) {
        const kv = 8 * Math.floor(head / 2);
        const query = arrays.queries.slice((first + token) * 32 + head * 8).slice(0, 8);
        const seen = stored[row].slice(0, start + token + 1);
        const weights = seen.map(({ keys }) =>
          Math.exp(query.reduce((sum, q, i) => sum + q * keys[kv + i], 0) / Math.sqrt(8)),
        );
        const total = weights.reduce((sum, weight) => sum + weight);
        for (let i = 0; i < 8; i += 1)
          expected.push(weights.reduce((sum, w, j) => sum + w * seen[j].values[kv + i], 0) / total);
      }
  close(arrays.out, expected);
});

test("a row of logits is summed up by its maximum and its normalizer", () => {
  const { likeliest, logSums } = summarize(Float32Array.from([0, 3, 3, 1, 900, 0, 0, 0]), 4);
  assert.deepEqual([...likeliest], [1, 0]); // the first of two equal ones
  close(logSums, [Math.log(1 + 2 * Math.exp(3) + Math.E), 900]);
});
