/** Draws a thumbnail of each log in `../scenarios`, as SVG for both themes: `../static/gallery/NAME.svg`. See `build.mjs`. */

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { gunzipSync } from "node:zlib";
import { THEMES } from "./src/drawing/palette.ts";
import { SvgPainter } from "./src/drawing/svg_painter.ts";
import { drawThumbnail, THUMBNAIL } from "./src/drawing/thumbnail.ts";
import { Model } from "./src/model/index.ts";

const scenarios = new URL("../scenarios/", import.meta.url);
const COLOUR = /(fill|stroke)="(#[0-9a-f]{6})"/g;
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
    const [light, dark] = [THEMES.light, THEMES.dark].map((theme) => {
      const painter = new SvgPainter().begin(THUMBNAIL.width, THUMBNAIL.height, 1, theme);
      drawThumbnail(painter, model, step);
      return painter.svg(`${name}, step ${step}`);
    });
    await writeFile(new URL(`${name}.svg`, folder), inBothThemes(light, dark));
  }
  return Object.keys(entries).length;
}

/** The light picture with rules that replace each of its colours by the dark picture's where the page is dark. */
function inBothThemes(light, dark) {
  const rules = new Map();
  const others = dark.matchAll(COLOUR);
  for (const [colour, property, value] of light.matchAll(COLOUR)) {
    const rule = `[${colour}]{${property}:${others.next().value[2]}}`;
    if ((rules.get(colour) ?? rule) !== rule)
      throw new Error(
        `${value} stands for two colours of the dark theme: ${rules.get(colour)}, ${rule}`,
      );
    rules.set(colour, rule);
  }
  const style = `<style>@media(prefers-color-scheme:dark){${[...rules.values()].join("")}}</style>`;
  return light.replace("<defs>", `${style}<defs>`);
}
