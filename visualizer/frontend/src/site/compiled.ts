/**
 * Compiled modules of wheels in a snapshot of Python's memory. The snapshot has their data and refers to their functions
 * by number, but it does not have the functions. They are linked again at the same addresses and numbers.
 *
 * Follows `loadWebAssemblyModule` of Emscripten, whose functions it calls.
 */

import type { PyodideAPI } from "pyodide";

/** A linked module: its file, and where its data and functions are. */
interface Linked {
  path: string;
  memory: [from: number, size: number];
  table: [from: number, size: number];
}

const emscripten = (python: PyodideAPI) => (python as any)._module;

/** What a snapshot must be restored with; see `struct dso` of musl for Emscripten. */
export function linkedModules(python: PyodideAPI): Linked[] {
  const { LDSO, HEAPU32 } = emscripten(python);
  return Object.entries<{ name: string }>(LDSO.loadedLibsByHandle)
    .filter(([handle]) => handle !== "0")
    .map(([handle, { name }]) => {
      const [from, size, first, count] = HEAPU32.subarray(Number(handle) / 4 + 3);
      return { path: name, memory: [from, size], table: [first, count] };
    });
}

/** Links the modules of a restored snapshot; `read` returns a file. */
export async function link(
  python: PyodideAPI,
  modules: Linked[],
  read: (path: string) => Uint8Array<ArrayBuffer>,
) {
  const module = emscripten(python);
  for (const { path, memory, table } of modules) {
    if (module.wasmTable.length !== table[0]) throw new Error(`${path} was linked elsewhere`);
    const [from, size] = memory;
    const data = module.HEAPU8.slice(from, from + size); // linking overwrites it
    module.wasmTable.grow(table[1]);
    let exports: Record<string, any> = {};
    const own: Record<string, unknown> = { __memory_base: from, __table_base: table[0] };
    const find = (_: object, name: string) =>
      own[name] ??
      module.resolveGlobalSymbol(name).sym ??
      ((...values: unknown[]) => exports[name](...values));
    const env: any = new Proxy({}, { get: find });
    const got: any = new Proxy(new Set(), module.GOTHandler);
    const { instance } = await WebAssembly.instantiate(read(path), {
      env,
      wasi_snapshot_preview1: env,
      "GOT.mem": got,
      "GOT.func": got,
    });
    module.updateTableMap(...table);
    exports = module.relocateExports(instance.exports, from);
    module.updateGOT(exports);
    module.HEAPU8.set(data, from);
  }
}
