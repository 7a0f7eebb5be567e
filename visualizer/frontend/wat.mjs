/** An esbuild plugin: a `.wat` file (WebAssembly text) is imported as its binary module, a Uint8Array. */

import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import createAssembler from "wabt";

export const wat = {
  name: "WebAssembly text as binary",
  setup({ onLoad }) {
    onLoad({ filter: /\.wat$/ }, async ({ path }) => {
      const assembler = await createAssembler();
      const module = assembler.parseWat(basename(path), await readFile(path, "utf8"));
      const { buffer } = module.toBinary({});
      module.destroy();
      return { contents: buffer, loader: "binary" };
    });
  },
};
