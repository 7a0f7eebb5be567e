/**
 * A canvas that records what is drawn on it, so that drawing can be tested in Node.
 *
 * `marks` has one entry per fill, outline, line or text: its kind, box, paint and opacity, moved back by
 * every translation, so that numbers are the drawing code's own.
 */

import { readFileSync } from "node:fs";
import { CanvasPainter } from "../src/drawing/canvas_painter.ts";
import { THEMES } from "../src/drawing/palette.ts";
import { Model } from "../src/model/index.ts";
import { parseLog } from "./model/read.js";

globalThis.DOMMatrix ??= class {
  scale() {
    return this;
  }
};

/** The log of `tests/visualizer/storytellers.py`: twelve requests, a fork, a preemption. */
export function storytellers() {
  const text = readFileSync(new URL("storytellers.jsonl", import.meta.url), "utf8");
  return new Model(parseLog(text).events);
}

class RecordingContext {
  marks = [];
  globalAlpha = 1;
  #path = [];

  #mark(kind, paint, box, more = {}) {
    this.marks.push({ kind, paint, alpha: this.globalAlpha, ...box, ...more });
  }

  fillRect(x, y, width, height) {
    this.#mark("fill", this.fillStyle, { x, y, width, height });
  }

  strokeRect(x, y, width, height) {
    this.#mark("frame", this.strokeStyle, { x, y, width, height });
  }

  getTransform() {
    return { a: 1, e: 0, f: 0 };
  }

  fillText(text, x, y) {
    this.#mark("text", this.fillStyle, { x, y }, { text });
  }

  beginPath() {
    this.#path = [];
  }

  rect(...box) {
    this.#path.push(box);
  }

  moveTo(x, y) {
    this.#path.push([x, y]);
  }

  lineTo(x, y) {
    this.#path.push([x, y]);
  }

  stroke() {
    this.#mark("line", this.strokeStyle, {}, { points: this.#path, dash: this.dash ?? [] });
  }

  fill() {
    this.#mark("shape", this.fillStyle, {}, { points: this.#path });
  }

  setLineDash(dash) {
    this.dash = dash;
  }

  measureText(text) {
    return { width: text.length * 5.5 };
  }

  createPattern(tile) {
    return { tile, setTransform() {} };
  }
}
for (const name of [
  ..."setTransform clearRect save restore clip strokeText arc translate scale".split(" "),
  "quadraticCurveTo",
]) {
  RecordingContext.prototype[name] = () => {};
}

function fakeCanvas() {
  const context = new RecordingContext();
  return { style: {}, getContext: () => context };
}

globalThis.document ??= { createElement: fakeCanvas };

/** A painter for a light board, and the list of its marks. */
export function recordingPencil(width = 760, height = 400) {
  const painter = new CanvasPainter(fakeCanvas());
  painter.begin(width, height, 1, THEMES.light);
  // No cached pictures: every mark is recorded.
  painter.layer = (_key, draw) => {
    draw(painter);
    return painter;
  };
  painter.lay = painter.layParts = () => {};
  return { painter, marks: painter.context.marks };
}
