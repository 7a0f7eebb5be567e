// Run pytest in Pyodide, which is CPython for WebAssembly; `tests/core_314` calls it. The one argument is JSON:
//   mounts     folders of this machine, by their place in Pyodide
//   wheels     archives to unpack into /packages
//   path       Python's sys.path beside its own library
//   folder     where pytest starts
//   arguments  pytest's
// The exit code is pytest's.

import { mkdirSync, readFileSync } from "node:fs";
import { loadPyodide } from "pyodide";

/** @type {{ mounts: Record<string, string>, wheels: string[], path: string[], folder: string, arguments: string[] }} */
const given = JSON.parse(process.argv[2]);

const pyodide = await loadPyodide({ env: { HOME: "/home", PYTHONDONTWRITEBYTECODE: "1" } });
for (const [place, folder] of Object.entries(given.mounts)) {
  pyodide.FS.mkdirTree(place);
  pyodide.mountNodeFS(place, folder);
}
for (const wheel of given.wheels) {
  pyodide.unpackArchive(new Uint8Array(readFileSync(wheel)), "zip", { extractDir: "/packages" });
}
process.exitCode = pyodide.runPython(`
import json, os, sys

sys.path[:0] = json.loads(path)
os.chdir(folder)
import pytest

int(pytest.main(json.loads(arguments)))
`, { globals: pyodide.toPy({ path: JSON.stringify(given.path), folder: given.folder, arguments: JSON.stringify(given.arguments) }) });
