import assert from "node:assert/strict";
import { test } from "node:test";
import { compress, GifWriter } from "../src/host/gif.ts";

/** LZW as a GIF reader decodes it. */
function expand(bytes) {
  let [held, bits, at, size] = [0, 0, 0, 9];
  let table = [];
  let before = null;
  const out = [];
  const read = () => {
    for (; bits < size; bits += 8) held |= bytes[at++] << bits;
    const code = held & ((1 << size) - 1);
    held >>>= size;
    bits -= size;
    return code;
  };
  const reset = () => {
    table = Array.from({ length: 258 }, (_, i) => [i]);
    [size, before] = [9, null];
  };
  for (let code = read(); code !== 257; code = read()) {
    if (code === 256) {
      reset();
      continue;
    }
    const entry = table[code] ?? [...before, before[0]];
    if (before && table.length < 4096) table.push([...before, entry[0]]);
    if (table.length === 1 << size && size < 12) size += 1;
    out.push(...entry);
    before = entry;
  }
  return out;
}

test("what is compressed expands again, however long and whatever its codes", () => {
  let state = 7;
  const random = (below) => {
    state = (state * 1103515245 + 12345) & 0x7fffffff;
    return (state >> 8) % below;
  };
  for (const [length, colours] of [
    [1, 1],
    [255, 1],
    [5000, 2],
    [3000, 256],
    [40_000, 5],
    ...Array.from({ length: 40 }, (_, i) => [240 + i, 256]),
  ]) {
    const indexes = Uint8Array.from({ length }, () => random(colours));
    assert.deepEqual(expand(compress(indexes)), [...indexes], `${length} of ${colours} colours`);
  }
  assert.ok(compress(new Uint8Array(100_000)).length < 1500);
});

test("the second frame holds only what has changed", async () => {
  const frame = (colour) => {
    const data = new Uint8ClampedArray(4 * 64 * 64).fill(255);
    data.set(colour, 4 * 100);
    return { data };
  };
  const gif = new GifWriter(64, 64);
  gif.add(frame([200, 0, 0]), 100);
  const first = gif.blob().size;
  gif.add(frame([0, 0, 200]), 100);
  const bytes = new Uint8Array(await gif.blob().arrayBuffer());
  assert.equal(new TextDecoder("latin1").decode(bytes.subarray(0, 6)), "GIF89a");
  assert.deepEqual([...bytes.subarray(6, 10)], [64, 0, 64, 0]);
  assert.equal(bytes.at(-1), 0x3b);
  assert.ok(bytes.length - first < 1000);
});
