/** Python for the lessons: Pyodide with the core, the same in the page's worker and, at build time, under Node. */

import type { PyodideAPI } from "pyodide";
import type { Answer } from "../board/seat.ts";
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

const SET_UP = `
import os, random, sys
random.seed()  # the snapshot's numbers are the same on every page
sys.path[:0] = ["/core", "/wheels"]
os.makedirs("/core/notebooks", exist_ok=True)
os.chdir("/core/notebooks")
import page_cells
page_cells.install()
import page_model, page_model_js
page_model.install(page_model_js.load)

from js import Object
from pyodide.ffi import to_js

def new_lesson():
    lesson = page_cells.Lesson()
    def run(cell, source, send, is_changed):
        def give(output):
            send(to_js(output, dict_converter=Object.fromEntries))
        return lesson.run(cell, source, give, is_changed=is_changed)
    return run
`;

/**
 * Unpacks what Python needs besides Pyodide itself, and imports it: the engine, the checks, `page_cells.py` and wheels, as
 * `snapshot.mjs` has packed them. `loadModel` is called when a cell first needs the bundled model.
 */
export function setUp(python: PyodideAPI, archive: Uint8Array, loadModel: () => PageModel) {
  let last = "";
  for (const { name, bytes } of filesOf(archive)) {
    const folder = `/${name.slice(0, name.lastIndexOf("/"))}`;
    if (folder !== last) python.FS.mkdirTree(folder);
    last = folder;
    python.FS.writeFile(`/${name}`, bytes, { canOwn: true });
  }
  python.registerJsModule("page_model_js", { load: loadModel });
  python.runPython(SET_UP);
}

/** A namespace for the cells of one lesson. */
export function newLesson(python: PyodideAPI): Lesson {
  const run = python.globals.get("new_lesson")();
  return { run: (cell, source, send, isChanged) => run(cell, source, send, isChanged) };
}
