/**
 * Bundles `src/entry.js` into `../static/board.js`, one self-contained ES module, and its source map.
 *
 *   node build.mjs
 *
 * anywidget loads the module from a Blob URL, so it cannot import anything: everything is inlined,
 * the style sheets too. Every widget in a saved notebook carries a copy of the module. That is why its
 * size is limited and why it holds its own code deflated and unpacks it when it is loaded.
 */

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { deflateRawSync } from "node:zlib";
import { build, transform } from "esbuild";

const LIMIT = 150_000;
const EXPORTS = ["OwnRequest", "createParser", "duration", "mount", "paintSwatch", "watch"];
const here = new URL(".", import.meta.url);
const target = new URL("../static/", here);

const { outputFiles } = await build({
  entryPoints: [fileURLToPath(new URL("src/entry.js", here))],
  outfile: fileURLToPath(new URL("board.js", target)),
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  sourcemap: "external",
  plugins: [{ name: "style sheet as text", setup: styleSheetAsText }],
  write: false,
});
const [map, code] = outputFiles.sort(
  (a, b) => Number(b.path.endsWith(".map")) - Number(a.path.endsWith(".map")),
);
const module = pack(code.text);
const size = Buffer.byteLength(module);
if (size > LIMIT) {
  console.error(`static/board.js has ${size} bytes, more than ${LIMIT}`);
  process.exit(1);
}
await mkdir(target, { recursive: true });
await writeFile(new URL("board.js.map", target), map.contents);
await writeFile(new URL("board.js", target), module);
console.log(`static/board.js written, ${size} bytes (${code.contents.length} unpacked)`);

/**
 * A module that unpacks `text` and exports what it exports. The unpacked module has a Blob URL, which a
 * relative address of its source map cannot start from; the server has the map beside the module.
 */
function pack(text) {
  const packed = deflateRawSync(Buffer.from(text), { level: 9 }).toString("base64");
  return `// Underglass: built from visualizer/frontend/src by build.mjs, deflated. Do not edit.
const packed = "${packed}";
const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
const map = import.meta.url.startsWith("http") ? "\\n//# sourceMappingURL=" + new URL("board.js.map", import.meta.url) : "";
const code = new Blob([await new Response(stream).arrayBuffer(), map], { type: "text/javascript" });
const url = URL.createObjectURL(code);
const module = await import(url);
URL.revokeObjectURL(url);
export const { ${EXPORTS.join(", ")}, default: widget } = module;
export default widget;
`;
}

function styleSheetAsText({ onLoad }) {
  onLoad({ filter: /\.css$/ }, async ({ path }) => {
    const source = await readFile(path, "utf8");
    const { code: css } = await transform(source, { loader: "css", minify: true });
    return { contents: css, loader: "text" };
  });
}
