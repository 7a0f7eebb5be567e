/** Draws a thumbnail of each log in `../scenarios`, as SVG: `../static/gallery/NAME.svg`. See `build.mjs`. */

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { gunzipSync } from "node:zlib";
import { THEMES } from "./src/drawing/palette.ts";
import { SvgPainter } from "./src/drawing/svg_painter.ts";
import { drawThumbnail, THUMBNAIL } from "./src/drawing/thumbnail.ts";
import { Model } from "./src/model/index.ts";

const scenarios = new URL("../scenarios/", import.meta.url);
const folder = new URL("../static/gallery/", import.meta.url);

/** Writes all pictures and returns their number. */
export async function drawGallery() {
  const entries = {};
  for (const file of ["gallery.json", "recorded.json"])
    Object.assign(entries, JSON.parse(await readFile(new URL(file, scenarios), "utf8")));
  await mkdir(folder, { recursive: true });
  for (const [name, { step }] of Object.entries(entries)) {
    const model = new Model();
    model.read(gunzipSync(await readFile(new URL(`${name}.jsonl.gz`, scenarios))));
    model.end();
    const painter = new SvgPainter().begin(THUMBNAIL.width, THUMBNAIL.height, 1, THEMES.light);
    drawThumbnail(painter, model, step);
    await writeFile(new URL(`${name}.svg`, folder), painter.svg(`${name}, step ${step}`));
  }
  return Object.keys(entries).length;
}
