/** Bundles the model's modules, whose matrix product has to be compiled first. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";
import { wat } from "../../wat.mjs";

const source = new URL("../../src/site/model/", import.meta.url);

/** Returns one module with the exports of all `names`. */
export async function bundle(...names) {
  const folder = await mkdtemp(join(tmpdir(), "model-"));
  const outfile = join(folder, "model.mjs");
  await build({
    stdin: {
      contents: names.map((name) => `export * from "./${name}.js";`).join("\n"),
      resolveDir: fileURLToPath(source),
    },
    bundle: true,
    format: "esm",
    target: "es2022",
    plugins: [wat],
    outfile,
  });
  try {
    return await import(pathToFileURL(outfile).href);
  } finally {
    await rm(folder, { recursive: true });
  }
}
