import assert from "node:assert/strict";
import { test } from "node:test";

import { drawLife, formsOf } from "../src/drawing/lane.ts";
import { drawWords, placeWords } from "../src/drawing/lane_words.ts";
import { THEMES } from "../src/drawing/palette.ts";
import { assertNames } from "./facts.js";
import { recordingPencil } from "./recorder.js";

const [hue] = THEMES.light.hues;
const BASE = 18;
const span = {
  lane: 0,
  name: "",
  finished: null,
  segments: [
    { kind: "prefill", from: 1, to: 1, count: 41, found: 0, drafts: 0, accepted: 0 },
    { kind: "decode", from: 2, to: 2, drafts: 0, accepted: 0 },
    { kind: "decode", from: 3, to: 3, drafts: 4, accepted: 2 },
    { kind: "decode", from: 4, to: 4, drafts: 1, accepted: 0 },
  ],
};

/** The marks and labels of the span's lane, with a given number of pixels per step. */
function drawn(width, pitch = 22) {
  const { painter, marks } = recordingPencil();
  const scale = {
    x: (step) => width * step,
    end: (step) => width * (step + 1),
    first: 1,
    last: 9,
    width,
    left: 0,
    right: 700,
  };
  const model = { requests: [span], lastStep: 40 };
  const scene = { scale, model, laneHeight: pitch, end: 700, narrow: false };
  const words = drawLife(painter, scene, { index: 0, from: 1, to: 4 }, BASE);
  drawWords(painter, placeWords(painter, words), 9);
  const above = marks.filter(({ y, height }) => y + height < BASE - formsOf(pitch).decode);
  const texts = marks.filter(({ kind }) => kind === "text").map(({ text }) => text);
  return { above, texts, scale };
}

test("a step's drafts are cells above its dash, in order: accepted ones are filled", () => {
  const { above, scale } = drawn(26);
  const cells = above.filter(({ x }) => x >= scale.x(3) && x < scale.end(3));
  assert.deepEqual(
    cells.map(({ kind }) => kind),
    ["fill", "fill", "frame", "frame"],
  );
  assert.ok(cells.every(({ paint, width, height }) => paint === hue && width >= 3 && height >= 3));
  assert.ok(cells.every(({ x }, i) => !i || x > cells[i - 1].x));
  const refused = above.filter(({ x }) => x >= scale.x(4));
  assert.deepEqual(
    refused.map(({ kind }) => kind),
    ["frame"],
  );
  assert.equal(above.length, 5, "a step without drafts has none");
});

test("drafts too narrow for cells are one cell, filled as far as they were accepted", () => {
  const { above, scale } = drawn(10);
  const [kept, all] = above.filter(({ x }) => x < scale.x(4));
  assert.deepEqual([kept.kind, all.kind], ["fill", "frame"]);
  assert.equal(kept.width / (all.width + 1), 2 / 4); // its line lies inside
});

test("steps with enough room show 1+4; otherwise the label after the prefill explains it", () => {
  assert.deepEqual(drawn(26).texts, ["41", "1+4", "1+1"]);
  assert.deepEqual(drawn(120).texts, ["41", "1+4", "1+1"]);
  const [words, ...more] = drawn(10).texts;
  assertNames(words, 41, 1, 4);
  assert.deepEqual(more, []);
});

test("the first step's drafts do not overlap the prefill's count", () => {
  const at = span.segments;
  span.segments = [at[0], { ...at[2], from: 2, to: 2 }, { ...at[3], from: 3, to: 3 }];
  assert.deepEqual(drawn(26).texts, ["41", "1+1"]);
  span.segments = at;
});

test("lanes on a phone and in a notebook have the labels too", () => {
  assert.deepEqual(drawn(26, 19).texts, ["41", "1+4", "1+1"]);
});

test("a lower lane has no labels over the drafts", () => {
  const { above, texts } = drawn(26, 17);
  assert.equal(above.length, 5);
  assert.deepEqual(texts, ["41"]);
});
