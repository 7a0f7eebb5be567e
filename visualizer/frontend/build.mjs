/**
 * Bundles `src/entry.ts` into `../static/board.js`, `src/cluster_entry.ts` into `cluster.js`, `src/live_entry.ts` into
 * `watch.js` and `live.js`, and the scripts of the server's pages into `live_page.js` and `gateway_page.js`:
 * self-contained ES modules, and their source maps. It also draws the gallery's pictures.
 *
 *   node build.mjs
 *
 * anywidget loads a widget's module from a Blob URL, so it cannot import anything: everything is inlined,
 * the style sheets too. Every widget in a saved notebook carries a copy of the module. That is why its
 * size is limited and why it holds its own code deflated and unpacks it when it is loaded. The others are
 * served as they are, so that a page that shows users' prompts runs no script but the server's files.
 */

import { mkdir, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { deflateRawSync } from "node:zlib";
import { build } from "esbuild";
import { drawGallery } from "./gallery.mjs";
import { styleSheetAsText } from "./style_sheets.mjs";

// Notebooks store the modules of widgets, which export `exports` and have at most `limit` bytes.
const MODULES = {
  board: { entry: "src/entry.ts", exports: ["mount"], limit: 172_000 },
  cluster: {
    entry: "src/cluster_entry.ts",
    exports: ["mount", "watch"],
    limit: 200_000,
  },
  watch: { entry: "src/live_entry.ts", exports: ["watch"], limit: 160_000 },
  live: { entry: "src/live_entry.ts" },
  live_page: { entry: "../../server/pages/live.ts" },
  gateway_page: { entry: "../../server/pages/gateway.ts" },
};
// 85 characters that no string, script or template has to escape.
const DIGITS = Array.from({ length: 94 }, (_, i) => String.fromCharCode(33 + i))
  .filter((one) => !"\"\\'`<>&$=".includes(one))
  .join("");
const here = new URL(".", import.meta.url);
const target = new URL("../static/", here);

await mkdir(target, { recursive: true });
for (const [name, { entry, exports, limit = Infinity }] of Object.entries(MODULES)) {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL(entry, here))],
    outfile: fileURLToPath(new URL(`${name}.js`, target)),
    bundle: true,
    format: "esm",
    target: "es2022",
    minify: true,
    charset: "utf8",
    legalComments: "none",
    sourcemap: exports ? "external" : "linked",
    tsconfig: fileURLToPath(new URL("tsconfig.json", here)),
    plugins: [{ name: "style sheet as text", setup: styleSheetAsText }],
    write: false,
  });
  const [map, code] = outputFiles.sort(
    (a, b) => Number(b.path.endsWith(".map")) - Number(a.path.endsWith(".map")),
  );
  const module = exports ? pack(name, code.text, exports) : code.text;
  const size = Buffer.byteLength(module);
  if (size > limit) {
    console.error(`static/${name}.js has ${size} bytes, more than ${limit}`);
    process.exit(1);
  }
  await writeFile(new URL(`${name}.js.map`, target), map.contents);
  await writeFile(new URL(`${name}.js`, target), module);
  console.log(`static/${name}.js written, ${size} bytes (${code.contents.length} unpacked)`);
}
console.log(`static/gallery: ${await drawGallery()} pictures drawn`);

/**
 * A module that unpacks `text` and exports what it exports. The unpacked module has a Blob URL, which a
 * relative address of its source map cannot start from; the server has the map beside the module.
 */
function pack(name, text, exports) {
  const packed = deflateRawSync(Buffer.from(text), { level: 9, memLevel: 9 });
  return `// Underglass: built from visualizer/frontend/src by build.mjs, deflated. Do not edit.
const packed = "${base85(packed)}";
const view = new DataView(new ArrayBuffer((packed.length / 5) * 4));
for (let i = 0; i < packed.length; i += 5) {
  let word = 0;
  for (let j = i; j < i + 5; j += 1) word = word * 85 + "${DIGITS}".indexOf(packed[j]);
  view.setUint32((i / 5) * 4, word);
}
const stream = new Blob([view.buffer.slice(0, ${packed.length})]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
const map = import.meta.url.startsWith("http") ? "\\n//# sourceMappingURL=" + new URL("${name}.js.map", import.meta.url) : "";
const code = new Blob([await new Response(stream).arrayBuffer(), map], { type: "text/javascript" });
const url = URL.createObjectURL(code);
const module = await import(url);
URL.revokeObjectURL(url);
export const { ${[...exports, "default: widget"].join(", ")} } = module;
export default widget;
`;
}

/** Four bytes as five digits: shorter than base64. */
function base85(bytes) {
  const padded = Buffer.concat([bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4)]);
  let text = "";
  for (let i = 0; i < padded.length; i += 4) {
    let word = padded.readUInt32BE(i);
    let digits = "";
    for (let j = 0; j < 5; j += 1) {
      digits = DIGITS[word % 85] + digits;
      word = Math.floor(word / 85);
    }
    text += digits;
  }
  return text;
}
