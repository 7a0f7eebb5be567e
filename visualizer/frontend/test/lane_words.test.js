import assert from "node:assert/strict";
import { test } from "node:test";

import { waitLabel } from "../src/lane_words.js";

const own = (words, steps) => ({ words, steps, own: true });
const behind = (name, steps) => ({ words: `behind ${name}`, steps, own: false });

function label(reasons) {
  const pencil = { measure: (text) => 5 * text.length };
  const scene = {
    scale: { x: (step) => 10 * step, end: (step) => 10 * step + 10, left: 0, right: 1000 },
    model: { waitReasons: () => reasons, lastStep: 90 },
  };
  return waitLabel(pencil, scene, {}, { from: 1, to: 80 }, 0)[0].text;
}

test("what stands between two equal reasons is left out, and the reason is told once", () => {
  assert.equal(label([own("batch full", 3), behind("Cleo", 9), own("batch full", 4)]), "batch full …");
});

test("two reasons that differ are told in order", () => {
  assert.equal(label([own("batch full", 3), own("budget spent", 1)]), "batch full, then budget spent");
});
