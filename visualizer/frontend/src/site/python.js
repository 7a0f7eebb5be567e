/**
 * Python for the lessons: Pyodide with the core, the same in the page's worker and, at build time, under Node.
 *
 * @typedef {object} Files  the bytes that Python needs besides Pyodide itself
 * @property {ArrayBuffer[]} wheels
 * @property {ArrayBuffer} core  the engine, the checks and `page_cells.py`, zipped
 *
 * @typedef {object} Output  what a cell sends to the page, see `site/runtime/page_cells.py`
 * @property {string} kind
 * @property {string} [text]
 * @property {string} [stream]
 * @property {string} [html]
 * @property {string} [key]
 * @property {"board" | "cluster"} [module]
 * @property {Uint8Array | string} [log]  the bytes, or the address of a file
 * @property {Uint8Array} [before]  the log of the run before, in the playground
 * @property {Record<string, any>} [options]
 * @property {string} [name]
 * @property {string} [message]
 * @property {string} [trace]
 * @property {number | null} [line]
 * @property {string | null} [missing]
 * @property {string} [words]
 * @property {string} [unit]
 * @property {number} [done]
 * @property {number | null} [total]
 *
 * @typedef {object} Lesson
 * @property {(cell: number, source: string, send: (output: Output) => void, isChanged: boolean) => Promise<boolean>} run
 */

/** @import { PyodideAPI } from "pyodide" */
/** @import { PageModel } from "./model/index.js" */

const SET_UP = `
import os, sys
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
 * Unpacks the core and imports it. `loadModel` is called when a cell first needs the bundled model.
 *
 * @param {PyodideAPI} python @param {Files} files @param {() => PageModel} loadModel
 */
export function setUp(python, { wheels, core }, loadModel) {
  for (const wheel of wheels) python.unpackArchive(wheel, "zip", { extractDir: "/wheels" });
  python.unpackArchive(core, "zip", { extractDir: "/core" });
  python.registerJsModule("page_model_js", { load: loadModel });
  python.runPython(SET_UP);
}

/** A namespace for the cells of one lesson. @param {PyodideAPI} python @returns {Lesson} */
export function newLesson(python) {
  const run = python.globals.get("new_lesson")();
  return { run: (cell, source, send, isChanged) => run(cell, source, send, isChanged) };
}
