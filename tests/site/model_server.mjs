/**
 * Runs the page's model for a test in Python: a command per line on standard input, an answer per line on standard output.
 *
 *   node model_server.mjs FOLDER    the folder of model.safetensors and config.json
 */

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { bundle } from "../../visualizer/frontend/test/site/bundled_model.js";

const folder = `${pathToFileURL(process.argv[2])}/`;
const weights = await readFile(new URL("model.safetensors", folder));
const config = JSON.parse(await readFile(new URL("config.json", folder), "utf8"));
const { loadModel } = await bundle("index");
const model = loadModel(new Uint8Array(weights).buffer, config);
const caches = [];

const encoded = ({ buffer, byteOffset, byteLength }) =>
  Buffer.from(buffer, byteOffset, byteLength).toString("base64");
const COMMANDS = {
  describe: () => model.parameters,
  newCache: (blocks, blockSize) => caches.push(model.newCache(blocks, blockSize)) - 1,
  copy: (cache, from, to) => caches[cache].copy(from, to),
  read: (cache, block) => encoded(caches[cache].read(block)),
  write: (cache, block, page) =>
    caches[cache].write(block, new Float32Array(new Uint8Array(Buffer.from(page, "base64")).buffer)),
  forward(cache, ...arrays) {
    const result = model.forward(caches[cache], ...arrays.map((one) => Int32Array.from(one)));
    return [result.logits, result.likeliest, result.logSums].map(encoded);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...args] = JSON.parse(line);
  let answer;
  try {
    answer = { value: COMMANDS[command](...args) ?? null };
  } catch (error) {
    answer = { error: `${error}` };
  }
  console.log(JSON.stringify(answer));
}
