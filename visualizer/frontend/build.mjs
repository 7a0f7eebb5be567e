/**
 * Bundles `src/entry.js` into `../static/board.js`, one self-contained ES module.
 *
 *   node build.mjs           writes the bundle
 *   node build.mjs --check   fails if the committed bundle is not what the sources give
 *
 * anywidget loads the module from a Blob URL, so it can import nothing: everything is inlined, the
 * style sheet too. Every widget in a saved notebook carries a copy, hence the limit on its size, and
 * hence the packing: the module holds its own code deflated and unpacks it when it is loaded.
 */

import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { deflateRawSync, inflateRawSync } from "node:zlib";
import { build, transform } from "esbuild";

const LIMIT = 100_000;
const here = new URL(".", import.meta.url);
const target = new URL("../static/board.js", here);

const { outputFiles } = await build({
  entryPoints: [fileURLToPath(new URL("src/entry.js", here))],
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  plugins: [{ name: "style sheet as text", setup: styleSheetAsText }],
  write: false,
});
const code = outputFiles[0].text;

if (process.argv.includes("--check")) {
  // Compared unpacked: another version of zlib may pack the same code into other bytes.
  const committed = await readFile(target, "utf8").catch(() => "");
  if (unpack(committed) !== code) {
    fail("static/board.js is stale: run `node visualizer/frontend/build.mjs` and commit it");
  }
  console.log(`static/board.js is fresh, ${Buffer.byteLength(committed)} bytes`);
} else {
  const module = pack(code);
  const size = Buffer.byteLength(module);
  if (size > LIMIT) fail(`the module has ${size} bytes, more than ${LIMIT}`);
  await writeFile(target, module);
  console.log(`static/board.js written, ${size} bytes (${Buffer.byteLength(code)} unpacked)`);
}

function pack(text) {
  const packed = deflateRawSync(Buffer.from(text), { level: 9 }).toString("base64");
  return `// Underglass: built from visualizer/frontend/src by build.mjs, deflated. Do not edit.
const packed = "${packed}";
const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
const code = new Blob([await new Response(stream).arrayBuffer()], { type: "text/javascript" });
const url = URL.createObjectURL(code);
const module = await import(url);
URL.revokeObjectURL(url);
export const duration = module.duration;
export const mount = module.mount;
export const watch = module.watch;
export default module.default;
`;
}

function unpack(module) {
  const packed = /const packed = "([^"]*)"/.exec(module)?.[1] ?? "";
  return packed && inflateRawSync(Buffer.from(packed, "base64")).toString();
}

function styleSheetAsText({ onLoad }) {
  onLoad({ filter: /\.css$/ }, async ({ path }) => {
    const { code: css } = await transform(await readFile(path, "utf8"), {
      loader: "css",
      minify: true,
    });
    return { contents: css, loader: "text" };
  });
}

function fail(message) {
  console.error(message);
  process.exit(1);
}
