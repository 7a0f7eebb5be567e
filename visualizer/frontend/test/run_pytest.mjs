// Run pytest in Pyodide, which is CPython for WebAssembly; `tests/core_314` calls it. The one argument is JSON:
//   repository  where pytest starts
//   library     Python's site-packages of this machine
//   plain       files and folders in it that can be imported
//   wheels      archives to unpack
//   arguments   pytest's
// The exit code is pytest's.

import { readFileSync } from "node:fs";
import { loadPyodide } from "pyodide";

const given = JSON.parse(process.argv[2]);
const pyodide = await loadPyodide({ env: { HOME: "/home", PYTHONDONTWRITEBYTECODE: "1" } });
for (const name of ["repository", "library"]) {
  pyodide.FS.mkdirTree(`/${name}`);
  pyodide.mountNodeFS(`/${name}`, given[name]);
}
pyodide.FS.mkdirTree("/packages");
for (const name of given.plain) {
  pyodide.FS.symlink(`/library/${name}`, `/packages/${name}`);
}
for (const wheel of given.wheels) {
  pyodide.unpackArchive(new Uint8Array(readFileSync(wheel)), "zip", { extractDir: "/packages" });
}
process.exitCode = pyodide.runPython(
  `
import os, sys

sys.path[:0] = ["/repository", "/repository/notebooks", "/packages"]
os.chdir("/repository")
import pytest

int(pytest.main(list(arguments)))
`,
  { globals: pyodide.toPy({ arguments: given.arguments }) },
);
