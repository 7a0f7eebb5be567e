/**
 * Builds one module and its parts. esbuild splits it: what several entries need is in files that they share.
 *
 *   static/modules/    the entries and the files that they share, as ES modules: pages of a server load them as they
 *                      are, so that a page that shows users' prompts runs no script but the server's files
 *   static/board.js    the board as one file that needs no other, deflated: for notebooks and pages on disk
 *   static/cluster.js, static/compare.js, static/watch.js, static/seat.js
 *                      what a cluster's board, a comparison, a live board and the scheduler's seat need besides,
 *                      deflated. Python appends them to board.js (`visualizer/front_end.py`)
 *   static/play.js     the playground, which needs no board
 *   static/tour.js     what boards import when the reader first asks for a tour or a postcard. Pages contain it; a
 *                      notebook's board gets it from its kernel
 *
 *   node build.mjs
 *
 * anywidget loads a widget's module from a Blob URL, so that module cannot import a file. Every widget in a saved notebook
 * carries a copy of its text, which is why that text is limited and deflated. The copies in a page share one evaluated
 * module. The build also draws the gallery's pictures.
 */

import { createHash } from "node:crypto";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { deflateRawSync } from "node:zlib";
import { build, transformSync } from "esbuild";
import { drawGallery } from "./gallery.mjs";
import { styleSheetAsText } from "./style_sheets.mjs";

const ENTRIES = {
  board: "src/entry.ts",
  cluster: "src/cluster_entry.ts",
  compare: "src/compare_entry.ts",
  live: "src/live_entry.ts",
  seat: "src/seat_entry.ts",
  live_page: "../../server/pages/live.ts",
  gateway_page: "../../server/pages/gateway.ts",
};
const LIMIT = 190_000; // bytes of board.js
// 91 characters that neither a string nor a script in HTML has to escape.
const DIGITS = Array.from({ length: 94 }, (_, i) => String.fromCharCode(33 + i))
  .filter((one) => !'"\\<'.includes(one))
  .join("");
const PACKS = 'globalThis[Symbol.for("underglass.packs")]'; // modules that are loaded later, by key
const LAZY = 'globalThis[Symbol.for("underglass.lazy")]'; // loads them
const here = new URL(".", import.meta.url);
const target = new URL("../static/", here);
const modules = new URL("modules/", target);

await rm(modules, { recursive: true, force: true });
await mkdir(modules, { recursive: true });
const { outputFiles, metafile } = await build({
  absWorkingDir: fileURLToPath(here),
  entryPoints: ENTRIES,
  outdir: fileURLToPath(modules),
  bundle: true,
  splitting: true,
  chunkNames: "shared-[hash]",
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  sourcemap: "linked",
  metafile: true,
  tsconfig: fileURLToPath(new URL("tsconfig.json", here)),
  plugins: [{ name: "style sheet as text", setup: styleSheetAsText }],
  write: false,
});
const codes = new Map(); // by name
for (const { path, text, contents } of outputFiles) {
  const name = basename(path);
  if (name.endsWith(".js")) codes.set(name, text.replace(/\n\/\/# sourceMappingURL=.*\n*$/, ""));
  await writeFile(new URL(name, modules), contents);
}
const imports = new Map(
  Object.entries(metafile.outputs).map(([path, one]) => [
    basename(path),
    one.imports
      .filter(({ kind }) => kind !== "dynamic-import")
      .map((other) => basename(other.path)),
  ]),
);
const sizes = [...codes].map(([name, code]) => `${name} ${Buffer.byteLength(code)}`);
console.log(`static/modules: ${sizes.join(", ")}`);

const core = closure("board.js");
const WANTED_LATER = ["src/tour/tour.ts", "src/board/postcard_box.ts"];
const later = Object.entries(metafile.outputs)
  .filter(([, { entryPoint }]) => WANTED_LATER.includes(entryPoint))
  .map(([path]) => basename(path));
const board = `${loader()}const board = ${packed(core)};
//# exports
${exporting("board", ["mount"], "board")}`;
const parts = {
  "cluster.js": part("cluster", ["mount", "watch"]),
  "compare.js": part("compare", ["mount"]),
  "watch.js": part("live", ["watch"]),
  "seat.js": part("seat", ["openSeat", "answerOnBoard"]),
  "play.js": await alone("src/play_entry.ts"),
  "tour.js": later
    .map((one) => `(${PACKS} ??= {})["${keyOf(one)}"] = ${packed(closureOf(one))};\n`)
    .join(""),
  "board.js": board, // last: make compares its age with the sources'
};
console.log(`static/gallery: ${await drawGallery()} pictures drawn`);
for (const [name, text] of Object.entries(parts)) {
  const size = Buffer.byteLength(text);
  if (text === board && size > LIMIT) {
    console.error(`static/${name} has ${size} bytes, more than ${LIMIT}`);
    process.exit(1);
  }
  await writeFile(new URL(name, target), text);
  console.log(`static/${name} written, ${size} bytes`);
}

/** The text of an entry that needs no board. */
async function alone(entry) {
  const entryPoints = [fileURLToPath(new URL(entry, here))];
  const options = { bundle: true, minify: true, format: "esm", target: "es2022", write: false };
  return (await build({ ...options, entryPoints, charset: "utf8" })).outputFiles[0].text;
}

/** The names of an entry and of all that it imports; each follows what it imports. */
function closure(name, found = new Set()) {
  if (found.has(name)) return found;
  for (const other of imports.get(name)) closure(other, found);
  return found.add(name);
}

/** What an entry needs besides the board, with its exports. */
function part(entry, names) {
  return exporting(entry, names, `board, ${packed(closureOf(`${entry}.js`))}`);
}

function closureOf(name) {
  return [...closure(name)].filter((one) => !core.has(one));
}

function exporting(entry, names, packs) {
  return `const { ${[...names, "default: widget"].join(", ")} } = await load("${keyOf(`${entry}.js`)}", ${packs});
export { ${names.join(", ")} };
export default widget;
`;
}

/** A name that differs if the module does: a page may have widgets of two versions. */
function keyOf(name) {
  if (name.startsWith("shared-")) return name;
  return `${name} ${createHash("sha256").update(codes.get(name)).digest("hex").slice(0, 8)}`;
}

/** Modules, each after what it imports, as a list of their number of bytes and a text. */
function packed(names) {
  const files = [...names].map((name) => {
    const code = codes
      .get(name)
      .replace(/(?<=(?:from|import)"\.\/)([^"]+)/g, (_, one) => keyOf(one))
      .replace(/\bimport\("\.\/([^"]+)"\)/g, (_, one) => `${LAZY}("${keyOf(one)}")`);
    return `${keyOf(name)}\0${code}`;
  });
  const bytes = deflateRawSync(Buffer.from(files.join("\0")), { level: 9, memLevel: 9 });
  return `[${bytes.length}, "${base91(bytes)}"]`;
}

/** The code that unpacks modules once for all of their copies in a page. */
function loader() {
  const code = `const urls = (globalThis[Symbol.for("underglass.modules")] ??= {});
async function unpacked([length, text]) {
  const digits = "${DIGITS}";
  const bytes = new Uint8Array(length);
  for (let i = 0, at = 0, held = 0, bits = 0; at < length; i += 2) {
    held |= (digits.indexOf(text[i]) + digits.indexOf(text[i + 1]) * ${DIGITS.length}) << bits;
    for (bits += 13; bits > 7; bits -= 8, held >>= 8) bytes[at++] = held;
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return (await new Response(stream).text()).split("\\0");
}
async function load(key, ...packs) {
  for (const pack of urls[key] ? [] : packs) {
    const files = await unpacked(pack);
    for (let i = 0; i < files.length; i += 2) {
      const code = files[i + 1].replace(/(?<=(?:from|import)")\\.\\/([^"]+)/g, (_, name) => urls[name]);
      urls[files[i]] ??= URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    }
  }
  return import(urls[key]);
}
${PACKS} ??= {};
${LAZY} ??= (key) => load(key, ...[${PACKS}[key] ?? []].filter((pack) => pack.length));
`;
  const short = transformSync(code, { minifyWhitespace: true, minifySyntax: true }).code;
  return `// Underglass: built from visualizer/frontend/src by build.mjs, deflated. Do not edit.\n${short}`;
}

/** Thirteen bits as two digits: shorter than base64. Source: basE91, by Joachim Henke. */
function base91(bytes) {
  let text = "";
  let [held, bits] = [0, 0];
  for (const byte of [...bytes, 0, 0]) {
    held |= byte << bits;
    for (bits += 8; bits > 12; bits -= 13, held >>= 13) {
      const word = held & 8191;
      text += DIGITS[word % DIGITS.length] + DIGITS[Math.floor(word / DIGITS.length)];
    }
  }
  return text;
}
