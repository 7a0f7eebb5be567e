/**
 * Draws the site's pictures under Node, with the board's own drawing code and without a browser.
 *
 *   node site_pictures.mjs < jobs.json
 *
 * The input is a list of jobs. A job names a `log`, a `step`, the `selected` request and the `title`. It gets what it
 * has a path for: `card`, the postcard of the step as PNG, which link previews show; `light` and `dark`, thumbnails as
 * SVG; `moments`, a folder for the postcards of other moments, at most `most`. The output is a list with, for each job,
 * `{words, moments: [{step, selected, words}]}`.
 */

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { createCanvas, DOMMatrix, GlobalFonts } from "@napi-rs/canvas";

// The board asks for Inter where a system has neither Apple's nor Microsoft's font. A machine that builds the site may
// have no font at all.
for (const weight of ["400Regular/Inter_400Regular", "600SemiBold/Inter_600SemiBold"])
  GlobalFonts.registerFromPath(
    fileURLToPath(import.meta.resolve(`@expo-google-fonts/inter/${weight}.ttf`)),
    "Inter",
  );

const newCanvas = () => Object.assign(createCanvas(1, 1), { style: {} });
Object.assign(globalThis, { DOMMatrix, document: { createElement: newCanvas } });

// After the globals above, which a module of the board reads when it is loaded.
const { CanvasPainter } = await import("./src/drawing/canvas_painter.ts");
const { THEMES } = await import("./src/drawing/palette.ts");
const { drawPostcard, POSTCARD, postcardTitle } = await import("./src/drawing/postcard.ts");
const { SvgPainter } = await import("./src/drawing/svg_painter.ts");
const { drawThumbnail, THUMBNAIL } = await import("./src/drawing/thumbnail.ts");
const { pngOf } = await import("./src/host/png.ts");
const { Model } = await import("./src/model/index.ts");
const { momentSteps } = await import("./src/model/moments.ts");
const { openingScores, openingStep, openingRequest } = await import("./src/model/opening.ts");

const MOST = 3; // other moments of a log

/** The log of a file, plain or gzipped. */
async function modelOf(path) {
  const bytes = await readFile(path);
  const model = new Model();
  model.read(bytes[0] === 0x1f ? gunzipSync(bytes) : bytes);
  model.end();
  return model;
}

async function save(path, content) {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, content);
}

const canvas = newCanvas(); // one for all cards: each new one costs a collection of garbage

/** Writes the postcard of a step, and returns what it says. */
async function saveCard(path, card) {
  const painter = new CanvasPainter(canvas);
  painter.begin(POSTCARD.width, POSTCARD.height, POSTCARD.scale, THEMES.light);
  drawPostcard(painter, card);
  await save(path, await pngOf(painter.context.getImageData(0, 0, canvas.width, canvas.height)));
  return postcardTitle(card);
}

/** The moments of a run other than `step` that are most worth a look, in their order. */
function otherMoments(model, step) {
  const scores = openingScores(model);
  const score = (one) => scores[one - model.firstStep] ?? 0;
  return momentSteps(model)
    .filter((one) => one !== step)
    .sort((a, b) => score(b) - score(a) || a - b)
    .slice(0, MOST)
    .sort((a, b) => a - b);
}

/** The request that a step is about, as when a board opens there. */
const requestAt = (model, step) =>
  model.frame(step).decisions.find(({ hot, request }) => hot && request != null)?.request ?? null;

async function draw({ log, title, card, light, dark, moments, ...job }) {
  const model = await modelOf(log);
  const step = job.step ?? openingStep(model);
  const selected = job.step == null ? openingRequest(model) : (job.selected ?? null);
  for (const [theme, path] of [
    ["light", light],
    ["dark", dark],
  ]) {
    if (!path) continue;
    const painter = new SvgPainter().begin(THUMBNAIL.width, THUMBNAIL.height, 1, THEMES[theme]);
    drawThumbnail(painter, model, step);
    await save(path, painter.svg(`${title}, step ${step}`));
  }
  const words = card ? await saveCard(card, { model, step, selected, title }) : null;
  const others = [];
  for (const other of moments ? otherMoments(model, step) : []) {
    const request = requestAt(model, other);
    const said = { model, step: other, selected: request, title };
    const words = await saveCard(join(moments, `${other}.png`), said);
    others.push({ step: other, selected: request, words });
  }
  return { words, moments: others };
}

let input = "";
for await (const piece of process.stdin) input += piece;
const results = [];
for (const job of JSON.parse(input)) results.push(await draw(job));
process.stdout.write(JSON.stringify(results));
