/** Thirty marks: which shapes a mark consists of, on canvases and in HTML. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { markOf, paintSwatch } from "../src/drawing/marks.ts";
import { THEMES } from "../src/drawing/palette.ts";
import { MARKS } from "../src/model/lanes.ts";
import { recordingPencil } from "./recorder.js";

const { hues, faint } = THEMES.light;

/** What is drawn for a lane in a rectangle at (0, 0), as plain values. */
function drawn(width, height, lane) {
  const { painter, marks } = recordingPencil();
  painter.mark(0, 0, width, height, lane);
  return marks.map(({ kind, paint, width, height, points }) => ({
    kind,
    paint: typeof paint === "string" ? paint : "pattern",
    size: points ?? [width, height],
  }));
}

test("the lane decides: mod 10 is the hue, div 10 the texture; from the thirty-first on marks repeat", () => {
  for (const theme of Object.values(THEMES)) {
    const marks = Array.from({ length: MARKS }, (_, lane) => markOf(theme, lane));
    assert.equal(new Set(marks.map(({ hue, texture }) => `${hue} ${texture}`)).size, MARKS);
    assert.deepEqual(marks[23], { hue: theme.hues[3], texture: "keyline" });
    assert.deepEqual(markOf(theme, MARKS + 4), marks[4]);
  }
});

const SHAPES = {
  swatch: [10, 10],
  dash: [9, 6],
  "narrow dash": [3, 6],
  "low dash": [9, 5],
  prefill: [12, 14],
  "narrow prefill": [5, 14],
  block: [50, 31],
  cell: [5, 5],
  square: [11, 11],
};

for (const [name, [width, height]] of Object.entries(SHAPES))
  test(`solid, dots and keyline differ in a ${name}, and all have the hue`, () => {
    const looks = [0, 10, 20].map((lane) => drawn(width, height, lane));
    assert.equal(new Set(looks.map((look) => JSON.stringify(look))).size, 3);
    assert.deepEqual(looks[0], [{ kind: "fill", paint: hues[0], size: [width, height] }]);
    for (const look of looks) assert.equal(look[0].paint, hues[0]);
    // Dots do not reach over the shape, and the keyline leaves the hue on both sides.
    const [, { paint, size }] = looks[1];
    assert.equal(paint, "pattern");
    assert.ok(size[0] <= width && size[1] <= height);
    const [outer, hole] = looks[2][0].size;
    assert.deepEqual(outer, [0, 0, width, height]);
    assert.ok(hole[1] >= 1 && hole[1] + hole[3] <= height - 1);
    assert.ok(hole[2] >= 1 && hole[3] >= 1);
  });

test("a 6 px bar with a keyline is 2 + 2 + 2, and shapes under 3 px have the hue alone", () => {
  const [{ size }] = drawn(20, 6, 20);
  assert.deepEqual(size[1], [0, 2, 20, 2]);
  for (const lane of [10, 20])
    assert.deepEqual(drawn(2, 6, lane), [{ kind: "fill", paint: hues[0], size: [2, 6] }]);
});

test("without a lane a mark is an outline in no request's hue", () => {
  const [outline, ...more] = drawn(10, 10, null);
  assert.deepEqual([outline.kind, outline.paint, more.length], ["frame", faint, 0]);
  assert.ok(!hues.includes(markOf(THEMES.light, null).hue));
});

test("HTML swatches differ as the shapes do", () => {
  const looks = [null, 0, 10, 20].map((lane) => {
    const element = { style: {}, dataset: {} };
    paintSwatch(element, THEMES.light, lane);
    return [element.dataset.mark, JSON.stringify(element.style)];
  });
  assert.deepEqual(
    looks.map(([name]) => name),
    ["hollow", "solid", "dots", "keyline"],
  );
  assert.equal(new Set(looks.map(([, style]) => style)).size, 4);
  assert.deepEqual(
    looks.map(([, style]) => style.includes(hues[0])),
    [false, true, true, true],
  );
});
