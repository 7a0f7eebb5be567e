/**
 * Bundles what the static site's pages load into FOLDER: `node site.mjs FOLDER [METAFILE]`. `site/build.py` calls it.
 * METAFILE gets the files in each bundle, for `site/site_third_party.py`.
 *
 * Entries are the scripts that pages name (`src/site/*_page.ts`) and the workers. What several of them need is a
 * shared chunk. So the board is one file for all pages, and a page loads it when its first board comes near.
 */

import { readdirSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { styleSheetAsText } from "./style_sheets.mjs";
import { wat } from "./wat.mjs";

const [folder, metafile] = process.argv.slice(2);
if (!folder) throw new Error("usage: node site.mjs FOLDER [METAFILE]");

const source = fileURLToPath(new URL("src/site/", import.meta.url));
const files = readdirSync(source);
const common = {
  bundle: true,
  minify: true,
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  outdir: folder,
  logLevel: "warning",
};
const built = await build({
  ...common,
  metafile: true,
  entryPoints: [
    ...files.filter((name) => /(_page|worker)\.ts$/.test(name)),
    "model/index.ts", // for run_lessons.mjs
  ].map((name) => ({
    in: source + name,
    out: name.replace("/index", "").replace(/\.ts$/, ""),
  })),
  format: "esm",
  splitting: true,
  chunkNames: "[name]-[hash]",
  plugins: [{ name: "style sheet as text", setup: styleSheetAsText }, wat],
});
await build({
  ...common,
  entryPoints: files.filter((name) => name.endsWith(".css")).map((name) => source + name),
});
if (metafile) await writeFile(metafile, JSON.stringify(built.metafile));
