/** Below the map: blocks that changed hands in this step, each as a cell before and a cell after. */

import type { BoardContext } from "../board/board.ts";
import { patchChildren, v } from "../board/patch_children.ts";
import { drawSide } from "../drawing/blocks.ts";
import { CanvasPainter, type Rect } from "../drawing/canvas_painter.ts";
import { h, hide, plural, say, tell } from "../drawing/html.ts";
import { wordNodes } from "../drawing/words_html.ts";
import { type BlockChange, blockChanges, sideAfter } from "../model/block_changes.ts";
import { plain } from "../model/words.ts";

type DrawingContext = Omit<BoardContext, "block"> & { unit: number };

const MOST = 4;
const CELL = { width: 34, height: 20 };
const ARROW = 16;
const BESIDE = 4; // between the two cells of a copy
const GAP = 14;
const WORDS = { size: 11, bold: true };
const SWATCH = 16;

export class ChangedPanel {
  all: BlockChange[] = [];
  changes: BlockChange[] = [];
  count = h("span.count.small.muted");
  items = Array.from({ length: MOST }, () => {
    const painter = new CanvasPainter(h("canvas", { "aria-hidden": "true" }));
    const words = h("span.cut.muted");
    return { painter, words, element: h("li.small", words, painter.canvas) };
  });
  element = h(
    "div.changed",
    h("h2.cut", "Changed in this step", this.count),
    h("ul", ...this.items.map(({ element }) => element)),
  );

  draw({ frame, model, theme, unit, selected, width }: DrawingContext & { width: number }) {
    this.all = blockChanges(frame);
    this.changes = this.all.slice(0, this.fitting(width));
    this.items.forEach(({ painter }, i) => {
      const change = this.changes[i];
      if (change) drawChange(painter, change, { frame, model, theme, unit, selected });
    });
  }

  /** How many of the changes fit beside each other; at least one. */
  fitting(width: number) {
    const painter = this.items[0]?.painter as CanvasPainter;
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

  write(context: Omit<BoardContext, "block">) {
    const { length } = this.all;
    const shown = this.changes.length;
    const part = shown < length ? `; ${shown} of them here` : ", before and after";
    say(this.count, length ? `${plural(length, "block")}${part}` : "no block changed hands");
    this.items.forEach(({ element, words }, i) => {
      const change = this.changes[i];
      hide(element, !change);
      if (!change) return;
      patchChildren(words, [
        v("strong", String(change.block)),
        " ",
        ...wordNodes(change.spans, context),
      ]);
      tell(element, { block: change.block });
    });
  }
}

/** The width of a change's picture: two cells, for a copy three. */
const widthOf = ({ copy }: BlockChange) =>
  2 * CELL.width + ARROW + (copy === null ? 0 : CELL.width + BESIDE);

function drawChange(
  painter: CanvasPainter,
  change: BlockChange,
  { frame, model, theme, unit, selected }: DrawingContext,
) {
  const { block, before, after, copy } = change;
  painter.begin(widthOf(change), CELL.height, unit, theme);
  const scene = { model, frame, selected };
  const box = (x: number): Rect => [x, 0, CELL.width, CELL.height];
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
  drawSide(painter, scene, sideAfter(frame, block), box(x));
  drawSide(painter, scene, after, box(x + CELL.width + BESIDE));
}
