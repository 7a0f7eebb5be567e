/**
 * Prepares the start of a page's Python, once per build: `node snapshot.mjs FOLDER`. `site/site_assets.py` calls it.
 *
 * FOLDER has `underglass.zip` and the wheels that `contents.json` lists. It gets
 *
 *   snapshot.bin.gz  the memory of an interpreter that has started and has imported what the engine needs of the standard
 *                    library. A page restores it instead of starting Python. The engine itself is not in it, because
 *                    Pyodide cannot restore msgspec, a compiled module
 *   underglass.zip   the same, with the modules that pages import at once also compiled
 *
 * Nothing in them depends on the time, the machine or chance, so that equal sources give equal files.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { loadPyodide } from "pyodide";
import { unpack } from "./src/site/python.ts";

const [folder] = process.argv.slice(2);
if (!folder) throw new Error("usage: node snapshot.mjs FOLDER");

const A_DATE = 1_767_225_600_000; // 2026
Date.now = () => A_DATE;
let now = 0;
performance.now = () => now++;
crypto.getRandomValues = (array) => array; // a page's Python is seeded when it has been restored

/** @param {string} name */
function bytesOf(name) {
  const { buffer, byteOffset, byteLength } = readFileSync(join(folder, name));
  return buffer.slice(byteOffset, byteOffset + byteLength);
}

/** Imports what pages import at once; returns the modules of the standard library, and the compiled zip. */
const COMPILE = `
import sys
STARTED = set(sys.modules)
def compiled(data):
    import importlib._bootstrap_external as external
    import io, os, py_compile, zipfile
    sys.path[:0] = ["/core", "/wheels"]
    import page_cells, page_front, page_model, page_open, page_play, page_seat
    ours = ("/core", "/wheels")
    files, names = [], []
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith("/core/"):
            files.append(file)
        elif not file.startswith(ours) and name not in STARTED:
            names.append(name)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    buffer = io.BytesIO(bytes(data))
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for file in files:
            about = zipfile.ZipInfo(external.cache_from_source(file).removeprefix("/core/"), (2026, 1, 1, 0, 0, 0))
            about.compress_type = zipfile.ZIP_DEFLATED
            path = py_compile.compile(file, doraise=True, invalidation_mode=mode)
            with open(path, "rb") as code:
                packed.writestr(about, code.read())
    return names, buffer.getvalue()
`;

const options = { _sysExecutable: "python", env: { HOME: "/home/pyodide", PYTHONHASHSEED: "0" } };
const { wheels } = JSON.parse(readFileSync(join(folder, "contents.json"), "utf8"));
const core = bytesOf("underglass.zip");
const whole = await loadPyodide(options);
whole.runPython(COMPILE);
unpack(whole, { core, wheels: wheels.map(bytesOf) });
const result = whole.globals.get("compiled")(new Uint8Array(core));
const [names, packed] = result.toJs();

const bare = await loadPyodide({ ...options, _makeSnapshot: true });
bare.globals.set("names", bare.toPy(names));
bare.runPython(`
import gc, importlib, random
for name in names:
    importlib.import_module(name)
random.seed(0)
del name, names
gc.collect()
`);
writeFileSync(join(folder, "snapshot.bin.gz"), gzipSync(bare.makeMemorySnapshot(), { level: 9 }));
writeFileSync(join(folder, "underglass.zip"), packed);
process.exit();
