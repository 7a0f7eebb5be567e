import assert from "node:assert/strict";
import { test } from "node:test";
import { THEMES } from "../src/drawing/palette.ts";
import { SvgPainter } from "../src/drawing/svg_painter.ts";
import { drawThumbnail, THUMBNAIL } from "../src/drawing/thumbnail.ts";
import { recordingPencil, storytellers } from "./recorder.js";

const model = storytellers();
const { width, height } = THUMBNAIL;

test("a thumbnail has all steps, a row per seat and nothing outside", () => {
  const { painter, marks } = recordingPencil(width, height);
  drawThumbnail(painter, model, 30);
  const { hues } = THEMES.light;
  const lanes = new Set(model.requests.map(({ lane }) => lane));
  for (const lane of lanes)
    assert.ok(marks.some(({ paint }) => paint === hues[lane % hues.length]));
  const filled = marks.filter(({ kind }) => kind === "fill");
  assert.ok(filled.every(({ x, y }) => x >= -1 && x <= width + 1 && y >= -1 && y <= height));
  assert.equal(marks.filter(({ kind }) => kind === "text").length, 0);
});

test("as SVG it is small, and rectangles of one paint are one path", () => {
  const painter = new SvgPainter().begin(width, height, 1, THEMES.light);
  drawThumbnail(painter, model, 30);
  const text = painter.svg("a run");
  assert.ok(!/NaN|undefined|Infinity/.test(text));
  assert.ok(text.length < 40_000, String(text.length));
  const plain = new SvgPainter().begin(10, 10, 1, THEMES.light);
  for (const x of [0, 2, 4]) plain.fill(x, 0, 1, 1, "#123456");
  plain.fill(6, 0, 1, 1, "#654321");
  plain.fill(8, 0, 1, 1, "#123456");
  assert.deepEqual(plain.context.elements, [
    '<path d="M0 0h1v1h-1zM2 0h1v1h-1zM4 0h1v1h-1z" fill="#123456"/>',
    '<path d="M6 0h1v1h-1z" fill="#654321"/>',
    '<path d="M8 0h1v1h-1z" fill="#123456"/>',
  ]);
});
