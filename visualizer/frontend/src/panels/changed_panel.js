/**
 * Below the map: blocks that changed hands in this step, each as a cell before and a cell after.
 *
 * @typedef {Omit<BoardContext, "block"> & {unit: number}} DrawingContext
 */

/** @import { BoardContext } from "../board/board.js" */
/** @import { Rect } from "../drawing/canvas_painter.js" */
/** @import { BlockChange, Side } from "../model/block_changes.js" */
import { patchChildren } from "../board/patch_children.js";
import { drawSide } from "../drawing/blocks.js";
import { CanvasPainter } from "../drawing/canvas_painter.js";
import { h, plural } from "../drawing/html.js";
import { wordNodes } from "../drawing/words_html.js";
import { blockChanges } from "../model/block_changes.js";
import { plain } from "../model/words.js";

const MOST = 4;
const CELL = { width: 34, height: 20 };
const ARROW = 16;
const BESIDE = 4; // between the two cells of a copy
const GAP = 14;
const WORDS = { size: 11, bold: true };
const SWATCH = 16;

export class ChangedPanel {
  constructor() {
    /** @type {BlockChange[]} */
    this.all = [];
    /** @type {BlockChange[]} */
    this.changes = [];
    this.count = h("span", { class: "count" });
    this.items = Array.from({ length: MOST }, () => {
      const painter = new CanvasPainter(h("canvas", { "aria-hidden": "true" }));
      const words = h("span", {});
      return { painter, words, element: h("li", {}, words, painter.canvas) };
    });
    this.element = h(
      "div",
      { class: "changed" },
      h("h2", {}, "Changed in this step", this.count),
      h("ul", {}, ...this.items.map(({ element }) => element)),
    );
  }

  /** @param {DrawingContext & {width: number}} context */
  draw({ frame, model, theme, unit, selected, width }) {
    this.all = blockChanges(frame);
    this.changes = this.all.slice(0, this.fitting(width));
    this.items.forEach(({ painter }, i) => {
      const change = this.changes[i];
      if (change) drawChange(painter, change, { frame, model, theme, unit, selected });
    });
  }

  /**
   * How many of the changes fit beside each other; at least one.
   *
   * @param {number} width
   */
  fitting(width) {
    const painter = /** @type {CanvasPainter} */ (this.items[0]?.painter);
    let right = 0;
    const beyond = this.all.slice(0, MOST).findIndex((change) => {
      const { block, spans } = change;
      const words = painter.measure(`${block} ${plain(spans)}`, WORDS);
      const names = spans.filter(({ request }) => request != null).length;
      right += Math.max(widthOf(change), words + names * SWATCH);
      const isBeyond = right > width;
      right += GAP;
      return isBeyond;
    });
    return beyond < 0 ? MOST : Math.max(1, beyond);
  }

  /** @param {Omit<BoardContext, "block">} context */
  write(context) {
    const { length } = this.all;
    const shown = this.changes.length;
    const part = shown < length ? `; ${shown} of them here` : ", before and after";
    this.count.textContent = length
      ? `${plural(length, "block")}${part}`
      : "no block changed hands";
    this.items.forEach(({ element, words }, i) => {
      const change = this.changes[i];
      element.hidden = !change;
      if (!change) return;
      patchChildren(words, [
        h("strong", {}, String(change.block)),
        " ",
        ...wordNodes(change.spans, context),
      ]);
      element.dataset.block = `${change.block}`;
    });
  }
}

/** The width of a change's picture: two cells, for a copy three. @param {BlockChange} change */
const widthOf = ({ copy }) => 2 * CELL.width + ARROW + (copy === null ? 0 : CELL.width + BESIDE);

/** @param {CanvasPainter} painter @param {BlockChange} change @param {DrawingContext} context */
function drawChange(painter, change, { frame, model, theme, unit, selected }) {
  const { block, before, after, copy } = change;
  painter.begin(widthOf(change), CELL.height, unit, theme);
  const scene = { model, frame, selected };
  /** @param {number} x @returns {Rect} */
  const box = (x) => [x, 0, CELL.width, CELL.height];
  drawSide(painter, scene, before, box(0));
  const y = CELL.height / 2;
  painter.line(CELL.width + 3, y, CELL.width + ARROW - 5, y, theme.ink, 1.4);
  painter.tip(CELL.width + ARROW - 3, y, "right", theme.ink);
  const x = CELL.width + ARROW;
  if (copy === null) {
    drawSide(painter, scene, after, box(x));
    return;
  }
  // A copy: one cell becomes two.
  const { kind, owners, filled } = frame.blocks[block];
  /** @type {Side} */
  const source = { kind: kind === "unshared" ? "owned" : kind, owner: owners[0] ?? null, filled };
  drawSide(painter, scene, source, box(x));
  drawSide(painter, scene, after, box(x + CELL.width + BESIDE));
}
