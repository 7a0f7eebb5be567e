/** The worker that runs cells. Everything it loads comes from this site. */

import { loadModel } from "./model/index.ts";
import { newLesson, type Output, setUp } from "./python.ts";

/** what the page asks for */
export interface Task {
  id: number;
  cell: number;
  source: string;
  isChanged: boolean;
  files?: Record<string, Uint8Array>; // written before the cell runs, by path
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

// Hosts may not compress .wasm, so it is stored packed and unpacked here.
const plainFetch = scope.fetch.bind(scope);
scope.fetch = async (url: any, ...rest: any[]) => {
  const address = String(url?.url ?? url);
  if (!address.endsWith(".wasm")) return plainFetch(url, ...rest);
  return unpacked(`${address}.gz`);
};

/** A packed file of this site. A host that declares it as gzip has it unpacked on the way. */
async function unpacked(name: string) {
  const bytes = new Uint8Array(await bytesOf(name));
  const isPacked = bytes[0] === 0x1f && bytes[1] === 0x8b;
  const stream = isPacked
    ? new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))
    : bytes;
  return new Response(stream, { headers: { "content-type": "application/wasm" } });
}

const bytesOf = async (name: string) => {
  const response = await plainFetch(new URL(name, folder));
  if (!response.ok) throw new Error(`${name}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
};

/** Loads the model while Python waits: a worker may ask for a file and wait for it. */
function loadModelNow() {
  const config = ask("config.json", "json");
  say({ phase: { phase: "model", bytes: config.weight_bytes } });
  const model = loadModel(ask("model.safetensors", "arraybuffer"), config);
  say({ phase: { phase: "ready" } });
  return model;
}

function ask(name: string, type: XMLHttpRequestResponseType) {
  const request = new XMLHttpRequest();
  request.open("GET", new URL(`../model/${name}`, import.meta.url), false);
  request.responseType = type;
  request.send();
  if (request.status !== 200) throw new Error(`${name}: ${request.status} ${request.statusText}`);
  return request.response;
}

const starting = start();
starting.catch((error) => say({ broken: `${error.message ?? error}` }));

async function start() {
  const contents = await (await plainFetch(new URL("contents.json", folder))).json();
  say({ phase: { phase: "python", bytes: contents.bytes } });
  const [snapshot, archive] = ["snapshot.bin.gz", "underglass.tar.gz"].map(async (name) =>
    (await unpacked(name)).arrayBuffer(),
  );
  const { loadPyodide } = await import(new URL("pyodide.mjs", folder).href);
  const python = await loadPyodide({
    indexURL: folder.href,
    _loadSnapshot: snapshot,
    lockFileURL: new URL("pyodide-lock.json", folder).href,
  });
  say({ phase: { phase: "core" } });
  setUp(python, new Uint8Array(await archive), loadModelNow);
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
  last = last.then(() => run(data));
};
