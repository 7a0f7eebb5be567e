/**
 * Prepares the start of a page's Python, once per build: `node snapshot.mjs FOLDER CORE WHEEL...`. `site/site_assets.py`
 * calls it with a zip of the engine and with wheels. FOLDER gets
 *
 *   snapshot.bin.gz    the memory of an interpreter that has imported what pages need. A page restores it instead of
 *                      starting Python, and links compiled modules (`src/site/compiled.ts`)
 *   underglass.tar.gz  the files of the zip and the wheels; the modules that pages import at once are compiled, too
 *
 * Nothing in them depends on the time, the machine or chance, so that equal sources give equal files.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { loadPyodide } from "pyodide";
import { prepare } from "./src/site/python.ts";

const [folder, ...zips] = process.argv.slice(2);
if (!zips.length) throw new Error("usage: node snapshot.mjs FOLDER CORE WHEEL...");

const A_DATE = 1_767_225_600_000; // 2026
Date.now = () => A_DATE;
let now = 0;
performance.now = () => now++;
crypto.getRandomValues = (array) => array; // a page's Python is seeded when it has been restored

/** Compiles what pages import at once, and returns the archive. */
const ARCHIVE = `
import sys
sys.dont_write_bytecode = True
def archived():
    sys.path[:0] = ["/core", "/wheels"]
    import page_cells, page_front, page_model, page_open, page_play, page_seat
    ours = ("/core/", "/wheels/")
    files = sorted(getattr(module, "__file__", None) or "" for module in sys.modules.values())
    import io, os, py_compile, tarfile  # which pages do not need
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for file in files:
        if file.startswith(ours) and file.endswith(".py"):
            py_compile.compile(file, doraise=True, invalidation_mode=mode)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as packed:
        for root in ("/core", "/wheels"):
            for folder, folders, files in os.walk(root):
                folders.sort()
                for file in sorted(files):
                    path = os.path.join(folder, file)
                    about = tarfile.TarInfo(path.removeprefix("/"))
                    about.size = os.path.getsize(path)
                    with open(path, "rb") as content:
                        packed.addfile(about, content)
    return buffer.getvalue()
`;

const options = { _sysExecutable: "python", env: { HOME: "/home/pyodide", PYTHONHASHSEED: "0" } };
const whole = await loadPyodide(options);
whole.runPython(ARCHIVE);
for (const [index, path] of zips.entries()) {
  const { buffer, byteOffset, byteLength } = readFileSync(path);
  const zip = buffer.slice(byteOffset, byteOffset + byteLength);
  whole.unpackArchive(zip, "zip", { extractDir: index ? "/wheels" : "/core" });
}
const archive = whole.globals.get("archived")().toJs();

const bare = await loadPyodide({ ...options, _makeSnapshot: true });
prepare(bare, archive);
for (const [name, bytes] of Object.entries({
  "snapshot.bin.gz": bare.makeMemorySnapshot(),
  "underglass.tar.gz": archive,
}))
  writeFileSync(join(folder, name), gzipSync(bytes, { level: 7 }));
process.exit();
