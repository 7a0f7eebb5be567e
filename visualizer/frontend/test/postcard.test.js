import assert from "node:assert/strict";
import { test } from "node:test";
import { THEMES } from "../src/drawing/palette.ts";
import {
  drawPostcard,
  momentWords,
  POSTCARD,
  postcardGrid,
  postcardTitle,
  requestsOn,
  stepsAround,
} from "../src/drawing/postcard.ts";
import { SvgPainter } from "../src/drawing/svg_painter.ts";
import { breakLines } from "../src/drawing/text_lines.ts";
import { recordingPencil, storytellers } from "./recorder.js";

const model = storytellers();
const PREEMPTS = 30; // r6 needs a block, r8 is preempted

test("the sentence has the moment's clauses without the step's number", () => {
  const words = momentWords(model.frame(PREEMPTS));
  assert.equal(words[0].request, 6);
  for (let step = model.firstStep; step <= model.lastStep; step += 1) {
    const text = momentWords(model.frame(step))
      .map((span) => span.text)
      .join("");
    assert.ok(text && !/^\s|^Step/.test(text), text);
  }
  assert.ok(postcardTitle({ model, step: PREEMPTS }).startsWith(`Step ${PREEMPTS}: r6`));
});

test("the card shows 28 steps around the moment, and all steps of a short log", () => {
  assert.deepEqual(stepsAround({ firstStep: 1, lastStep: 100 }, 50), { first: 33, last: 60 });
  assert.deepEqual(stepsAround({ firstStep: 1, lastStep: 100 }, 2), { first: 1, last: 28 });
  assert.deepEqual(stepsAround({ firstStep: 1, lastStep: 100 }, 100), { first: 73, last: 100 });
  assert.deepEqual(stepsAround({ firstStep: 5, lastStep: 9 }, 7), { first: 5, last: 9 });
});

test("of too many requests, those that the moment is about are on the card", () => {
  const frame = model.frame(PREEMPTS);
  const steps = stepsAround(model, PREEMPTS);
  const { shown, left } = requestsOn({ frame, model, selected: 9 }, steps, 4);
  assert.equal(shown.length, 4);
  assert.ok([6, 8, 9].every((id) => shown.includes(id)));
  assert.equal(left, frame.running.length + frame.waiting.length - 4);
  const lanes = shown.map((id) => model.laneOf(id, PREEMPTS) ?? Infinity);
  assert.deepEqual(
    lanes,
    lanes.toSorted((a, b) => a - b),
  );
  // With room to spare, requests that ended before are there, too.
  const all = requestsOn({ frame, model, selected: null }, steps, 20);
  assert.equal(all.left, 0);
  assert.ok(all.shown.some((id) => model.request(id).finished.step < PREEMPTS));
});

test("all blocks are inside the card, however many there are", () => {
  for (const count of [1, 12, 40, 64, 128, 500, 2000, 4096]) {
    const grid = postcardGrid(count);
    const last = count - 1;
    assert.ok(grid.y(last) + grid.body <= 353, `${count} blocks`);
    const right = grid.x(Math.min(last, grid.columns - 1)) + grid.cellWidth;
    assert.ok(right <= 768.01 && grid.cellWidth > 0 && grid.body > 0, `${count} blocks`);
  }
});

test("the map has every block that is in use", () => {
  const { painter, marks } = recordingPencil(POSTCARD.width, POSTCARD.height);
  drawPostcard(painter, { model, step: PREEMPTS, selected: null });
  const { blocks } = model.frame(PREEMPTS);
  const grid = postcardGrid(blocks.length);
  for (const { id } of blocks.filter(({ kind }) => kind !== "free")) {
    const isBlock = ({ x, y }) => Math.abs(x - grid.x(id)) < 1 && Math.abs(y - grid.y(id)) < 1;
    assert.ok(marks.some(isBlock), `block ${id}`);
  }
});

test("lines break between words, and a name keeps its comma", () => {
  const { painter } = recordingPencil();
  const spans = [
    { text: "one two " },
    { text: "Ada", request: 1 },
    { text: ", three " },
    { text: "four", bold: true },
  ];
  const texts = (lines) => lines.map(({ runs }) => runs.map(({ text }) => text).join("|"));
  assert.deepEqual(texts(breakLines(painter, spans, { width: 1000, size: 20 })), [
    "one|two|Ada|,|three|four",
  ]);
  assert.deepEqual(texts(breakLines(painter, spans, { width: 50, size: 20 })), [
    "one|two",
    "Ada|,",
    "three",
    "four",
  ]);
});

test("SVG and canvas have the same words, and a hostile text stays text", () => {
  const { painter, marks } = recordingPencil(POSTCARD.width, POSTCARD.height);
  const card = { model, step: PREEMPTS, selected: 8, title: "</text><script>", link: null };
  drawPostcard(painter, card);
  const svg = new SvgPainter().begin(POSTCARD.width, POSTCARD.height, POSTCARD.scale, THEMES.light);
  drawPostcard(svg, card);
  const text = svg.svg(postcardTitle(card));
  assert.ok(text.includes('width="1200" height="630"'));
  assert.ok(!text.includes("<script"));
  assert.ok(!/NaN|undefined|Infinity/.test(text));
  const inSvg = [...text.matchAll(/<text [^>]*>([^<]*)</g)].map(([, words]) => words);
  const onCanvas = marks.filter(({ kind }) => kind === "text").map((mark) => mark.text);
  assert.equal(inSvg.length, onCanvas.length);
  assert.ok(inSvg.includes(`step ${PREEMPTS}`) && onCanvas.includes(`step ${PREEMPTS}`));
});

test("a block without a window page lacks its corner in an SVG, and so does its hatching", () => {
  const painter = new SvgPainter().begin(40, 40, 1, THEMES.light);
  painter.withCutCorner([10, 10, 20, 20], 8, () =>
    painter.clipped(10, 10, 20, 10, () => painter.fill(10, 10, 20, 20, "red")),
  );
  const svg = painter.svg("");
  const corner = svg.match(/<clipPath id="(\w+)"><path d="M10 10L30 10L30 22L22 30L10 30"/);
  assert.ok(corner, svg);
  assert.match(
    svg,
    new RegExp(`<clipPath id="\\w+" clip-path="url\\(#${corner[1]}\\)"><path d="M10 10h20`),
  );
});
