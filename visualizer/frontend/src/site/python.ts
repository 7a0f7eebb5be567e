/** Python for the lessons: Pyodide with the core, the same in the page's worker and, at build time, under Node. */

import type { PyodideAPI } from "pyodide";
import type { Answer } from "../board/seat.ts";
import { link, linkedModules } from "./compiled.ts";
import type { PageModel } from "./model/index.ts";
import { filesOf } from "./tar.ts";

/** what a cell sends to the page, see `site/runtime/page_cells.py` */
export interface Output {
  kind: string;
  text?: string;
  stream?: string;
  html?: string;
  key?: string;
  module?: "board" | "cluster";
  log?: Uint8Array | string; // the bytes, or the address of a file
  options?: Record<string, any>;
  answer?: Answer; // of the scheduler's seat
  name?: string;
  message?: string;
  trace?: string;
  line?: number | null;
  missing?: string | null;
}

interface Lesson {
  run: (
    cell: number,
    source: string,
    send: (output: Output) => void,
    isChanged: boolean,
  ) => Promise<boolean>;
}

/** What the snapshot has. */
const PREPARE = `
import gc, json, random, sys
sys.path[:0] = ["/core", "/wheels"]
import page_cells, page_front, page_model, page_open, page_play, page_seat
page_cells.install()
page_model.tokenizer()

def new_lesson():
    from js import Object
    from pyodide.ffi import to_js
    lesson = page_cells.Lesson()
    def run(cell, source, send, is_changed):
        def give(output):
            send(to_js(output, dict_converter=Object.fromEntries))
        return lesson.run(cell, source, give, is_changed=is_changed)
    return run

random.seed(0)
gc.collect()
gc.freeze() # what is collected must be linked
`;

const SET_UP = `
import os
random.seed() # the snapshot's numbers are the same on every page
os.makedirs("/core/notebooks", exist_ok=True)
os.chdir("/core/notebooks")
import page_model_js
page_model.install(page_model_js.load)
`;

function unpack(python: PyodideAPI, archive: Uint8Array) {
  let last = "";
  for (const { name, bytes } of filesOf(archive)) {
    const folder = `/${name.slice(0, name.lastIndexOf("/"))}`;
    if (folder !== last) python.FS.mkdirTree(folder);
    last = folder;
    python.FS.writeFile(`/${name}`, bytes, { canOwn: true });
  }
}

/** Imports what pages need, before a snapshot is taken: the engine, the checks, `page_cells.py` and wheels. */
export function prepare(python: PyodideAPI, archive: Uint8Array) {
  unpack(python, archive);
  python.runPython(PREPARE);
  python.globals.set("linked", JSON.stringify(linkedModules(python)));
}

interface Module {
  HEAP8: Int8Array;
  _malloc(bytes: number): number;
}
type CreateModule = (settings: object) => Promise<Module>;

/**
 * Options of `loadPyodide` that restore a snapshot. `asm` is the module `pyodide.asm.mjs`. Pyodide copies a snapshot
 * into a memory of 30 MiB and does not make it larger, so this allocates until it is; the copy overwrites all.
 */
export function restoring(
  snapshot: ArrayBuffer | Uint8Array,
  asm: Promise<{ default: CreateModule }>,
): object {
  const createPyodideModule: CreateModule = async (settings) => {
    const module = await (await asm).default(settings);
    const pages = snapshot.byteLength >> 16; // and its header
    while (module.HEAP8.length >> 16 < pages) module._malloc(1 << 20);
    return module;
  };
  return { _loadSnapshot: snapshot, createPyodideModule };
}

/**
 * Completes a restored snapshot: the files that `snapshot.mjs` has packed, and compiled modules. `loadModel` is called
 * when a cell first needs the bundled model.
 */
export async function setUp(python: PyodideAPI, archive: Uint8Array, loadModel: () => PageModel) {
  unpack(python, archive);
  await link(python, JSON.parse(python.globals.get("linked")), (path) => python.FS.readFile(path));
  python.registerJsModule("page_model_js", { load: loadModel });
  python.runPython(SET_UP);
}

/** A namespace for the cells of one lesson. */
export function newLesson(python: PyodideAPI): Lesson {
  const run = python.globals.get("new_lesson")();
  return { run: (cell, source, send, isChanged) => run(cell, source, send, isChanged) };
}
