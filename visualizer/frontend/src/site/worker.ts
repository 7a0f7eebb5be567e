/** The worker that runs cells. Everything it loads comes from this site. */

import { loadModel } from "./model/index.ts";
import { newLesson, type Output, restoring, setUp } from "./python.ts";

/** what the page asks for */
export interface Task {
  id: number;
  cell: number;
  source: string;
  isChanged: boolean;
  files?: Record<string, Uint8Array>; // written before the cell runs, by path
  needsModel?: boolean; // loads the model at the same time as Python
}

export type Phase = { phase: "python" | "core" | "model" | "ready"; bytes?: number };

/** what the worker says */
export type Report =
  | { phase: Phase }
  | { id: number; output: Output }
  | { id: number; ok: boolean; ms: number }
  | { broken: string };

const scope = self as any;
const folder = new URL("../python/", import.meta.url);

const say = (report: Report) => scope.postMessage(report);

/** Contents of python/: the bytes to load, and a digest of each packed file. */
type Contents = { bytes: number; digests: Record<string, string> };

const load = async (url: URL) => {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  return response;
};

/** A packed file. The browser keeps it unpacked, because unpacking takes longer than the rest of the start. */
async function unpacked(name: string, contents: Promise<Contents>) {
  const key = new URL(`${name}?${(await contents).digests[name]}`, folder).href;
  const kept = await globalThis.caches?.open(folder.pathname).catch(() => null);
  const found = await kept?.match(key);
  if (found) return found.arrayBuffer();
  const bytes = await (await load(new URL(name, folder))).arrayBuffer();
  // A host that declares the file as gzip has it unpacked on the way.
  const isPacked = new DataView(bytes).getUint16(0) === 0x1f8b;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const plain = isPacked ? await new Response(stream).arrayBuffer() : bytes;
  if (kept) keep(kept, key, plain).catch(() => {}); // the browser may have no room
  return plain;
}

/** Keeps a file for the next visit, in place of an earlier build's. */
async function keep(kept: Cache, key: string, bytes: ArrayBuffer) {
  const old = new URL(key).pathname;
  for (const { url } of await kept.keys())
    if (new URL(url).pathname === old) await kept.delete(url);
  await kept.put(key, new Response(bytes));
}

const modelUrl = (name: string) => new URL(`../model/${name}`, import.meta.url);

/** The model's files, if they were loaded before Python asked for them. */
let modelFiles: [config: any, weights: ArrayBuffer] | undefined;

const loadModelFiles = async () => {
  const [config, weights] = await Promise.all(
    ["config.json", "model.safetensors"].map((name) => load(modelUrl(name))),
  );
  modelFiles = [await config.json(), await weights.arrayBuffer()];
};

/** Returns the model while Python waits: a worker may ask for a file and wait for it. */
function loadModelNow() {
  const config = modelFiles?.[0] ?? ask("config.json", "json");
  say({ phase: { phase: "model", bytes: config.weight_bytes } });
  const model = loadModel(modelFiles?.[1] ?? ask("model.safetensors", "arraybuffer"), config);
  say({ phase: { phase: "ready" } });
  return model;
}

function ask(name: string, type: XMLHttpRequestResponseType) {
  const request = new XMLHttpRequest();
  request.open("GET", modelUrl(name), false);
  request.responseType = type;
  request.send();
  if (request.status !== 200) throw new Error(`${name}: ${request.status} ${request.statusText}`);
  return request.response;
}

const starting = start();
starting.catch((error) => say({ broken: `${error.message ?? error}` }));

async function start() {
  const contents: Promise<Contents> = load(new URL("contents.json", folder)).then((response) =>
    response.json(),
  );
  contents.then(({ bytes }) => say({ phase: { phase: "python", bytes } }));
  const [snapshot, archive] = ["snapshot.bin.gz", "underglass.tar.gz"].map((name) =>
    unpacked(name, contents),
  );
  const asm = import(new URL("pyodide.asm.mjs", folder).href);
  const { loadPyodide } = await import(new URL("pyodide.mjs", folder).href);
  const python = await loadPyodide({
    indexURL: folder.href,
    ...restoring(await snapshot, asm),
    lockFileURL: new URL("pyodide-lock.json", folder).href,
  });
  say({ phase: { phase: "core" } });
  await setUp(python, new Uint8Array(await archive), loadModelNow);
  const lesson = newLesson(python);
  say({ phase: { phase: "ready" } });
  return { python, lesson };
}

let last: Promise<unknown> = starting;

async function run({ id, cell, source, isChanged, files = {} }: Task) {
  const { python, lesson } = await starting;
  for (const [path, bytes] of Object.entries(files)) python.FS.writeFile(path, bytes);
  const began = performance.now();
  const ok = await lesson.run(cell, source, (output) => say({ id, output }), isChanged);
  say({ id, ok, ms: performance.now() - began });
}

scope.onmessage = ({ data }: MessageEvent<Task>) => {
  const model = data.needsModel ? loadModelFiles().catch(() => {}) : null; // Python asks again
  last = last.then(() => model).then(() => run(data));
};
