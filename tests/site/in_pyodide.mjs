/**
 * Runs a Python script with the page's model in Pyodide, as a page does, but under Node. Prints what the script prints.
 *
 *   node in_pyodide.mjs REPOSITORY SCRIPT WHEEL...
 */

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bundle } from "../../visualizer/frontend/test/site/bundled_model.js";

const [repository, script, ...wheels] = process.argv.slice(2);
const frontend = join(repository, "visualizer/frontend");
const { loadPyodide } = await import(
  pathToFileURL(join(frontend, "node_modules/pyodide/pyodide.mjs")).href
);
const { loadModel } = await bundle("index");

const python = await loadPyodide();
const buffer = async (path) => new Uint8Array(await readFile(path)).buffer;
for (const wheel of wheels)
  python.unpackArchive(await buffer(wheel), "zip", { extractDir: "/wheels" });
python.mountNodeFS("/core", repository);
const bundled = join(repository, "engine/bundled");
const config = JSON.parse(await readFile(join(bundled, "config.json"), "utf8"));
const model = loadModel(await buffer(join(bundled, "model.safetensors")), config);
python.registerJsModule("page_model_js", { load: () => model });
python.runPython(`
import sys
sys.path[:0] = ["/core", "/core/site/runtime", "/wheels"]
import page_model, page_model_js
page_model.install(page_model_js.load)
`);
python.runPython(await readFile(script, "utf8"));
