/**
 * Runs lessons in Pyodide under Node, with what a page has, to find out which cells run there and what they show.
 *
 *   node run_lessons.mjs SITE < lessons.json > runs.json
 *
 * The input is {lesson: [{cell, source}]}, the output {lesson: {cell: {ok, outputs}}}. Logs of boards are written to
 * SITE/logs under a digest of their bytes, and outputs have their addresses.
 */

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";
import { gunzipSync } from "node:zlib";
import { loadPyodide } from "pyodide";
import { pass, restart } from "./lesson_clock.mjs";
import { newLesson, restoring, setUp } from "./src/site/python.ts";

const [site] = process.argv.slice(2);
if (!site) throw new Error("usage: node run_lessons.mjs SITE < lessons.json > runs.json");
const lessons = JSON.parse(await text(process.stdin));
const logs = join(site, "logs");
mkdirSync(logs, { recursive: true });

/** @param {string} name */
function bytesOf(name) {
  const { buffer, byteOffset, byteLength } = readFileSync(join(site, name));
  return buffer.slice(byteOffset, byteOffset + byteLength);
}

/** Writes a packed log, and returns its address. @param {Uint8Array} bytes */
function save(bytes) {
  const name = `${createHash("sha256").update(bytes).digest("hex").slice(0, 16)}.gz`;
  writeFileSync(join(logs, name), bytes);
  return `logs/${name}`;
}

/** @param {import("./src/site/python.ts").Output} output */
function stored(output) {
  if (!(output.log instanceof Uint8Array)) return output;
  const { compare } = output.options ?? {};
  if (compare) compare.b = save(compare.b);
  return { ...output, log: save(output.log) };
}

const unpacked = (/** @type {string} */ name) => gunzipSync(new Uint8Array(bytesOf(name)));
const snapshot = unpacked("python/snapshot.bin.gz");
const archive = unpacked("python/underglass.tar.gz");
const asm = import(pathToFileURL(join(site, "python/pyodide.asm.mjs")).href);
const { loadModel } = await import(pathToFileURL(join(site, "assets/model.js")).href);

/** The bundled model. Its steps take on the lessons' clock what a laptop took for steps of 1 to 256 tokens. */
function loadTimedModel() {
  const config = JSON.parse(readFileSync(join(site, "model/config.json"), "utf8"));
  const model = loadModel(bytesOf("model/model.safetensors"), config);
  /** @param {object} cache @param {ArrayLike<number>[]} arrays see `src/site/model/batch.ts` */
  const forward = (cache, ...arrays) => {
    const [tokens, , , , wanted] = arrays;
    pass(0.5 + 0.33 * tokens.length + 0.6 * wanted.length);
    return model.forward(cache, ...arrays);
  };
  return { ...model, forward };
}

/** A Python of its own for each lesson, as in its page: what one leaves behind does not reach another. */
async function startLesson() {
  restart();
  const python = await loadPyodide(restoring(snapshot, asm));
  await setUp(python, archive.slice(), loadTimedModel);
  return newLesson(python);
}

/** Whether a cell ended well; one that waits for what never comes has not. @param {Promise<boolean>} running */
async function ends(running) {
  // Node fires this when nothing is left that a cell could wait for.
  const stuck = new Promise((resolve) => process.once("beforeExit", () => resolve(false)));
  const ok = await Promise.race([running, stuck]);
  process.removeAllListeners("beforeExit");
  return ok;
}

/** @type {Record<string, Record<number, {ok: boolean, outputs: object[]}>>} */
const runs = {};
for (const [name, cells] of Object.entries(lessons)) {
  const lesson = await startLesson();
  runs[name] = {};
  for (const { cell, source } of cells) {
    /** @type {object[]} */
    const outputs = [];
    const ok = await ends(
      lesson.run(cell, source, (output) => outputs.push(stored(output)), false),
    );
    runs[name][cell] = { ok, outputs };
  }
}
process.stdout.write(JSON.stringify(runs), () => process.exit());
