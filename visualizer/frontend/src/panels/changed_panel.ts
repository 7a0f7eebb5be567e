/** Below the map: blocks that changed hands in this step, each as a cell before and a cell after. */

import type { BoardContext } from "../board/board.ts";
import { patchChildren } from "../board/patch_children.ts";
import { drawSide } from "../drawing/blocks.ts";
import { CanvasPainter, type Rect } from "../drawing/canvas_painter.ts";
import { h, hide, plural, say, tell } from "../drawing/html.ts";
import { wordNodes } from "../drawing/words_html.ts";
import { type BlockChange, blockChanges, sideAfter } from "../model/block_changes.ts";
import { plain, type Span } from "../model/words.ts";
import { Painted, paintTitle, paintWords } from "./painted.ts";

type DrawingContext = Omit<BoardContext, "block"> & { unit: number };
type PlaceContext = DrawingContext & { width: number };

const TITLE = "Changed in this step";
const MOST = 4;
// px, as in board.css
const TOP = 8;
const HEIGHT = 58;
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
    h("h2.cut", TITLE, this.count),
    h("ul", ...this.items.map(({ element }) => element)),
  );
  painted = new Painted(this.element);

  /** Finds what has changed. */
  read({ frame, width }: Pick<PlaceContext, "frame" | "width">) {
    this.all = blockChanges(frame);
    this.changes = this.all.slice(0, this.fitting(width));
  }

  /** Paints what `write` writes. */
  paint(context: PlaceContext) {
    const { width, theme } = context;
    const painter = this.painted.begin(width, TOP + HEIGHT, context, this.#counted());
    paintTitle(painter, TITLE, this.#counted(), TOP);
    const { size } = WORDS;
    const { muted: color } = theme;
    let x = 0;
    for (const change of this.changes) {
      const room = width - x;
      const words = wordsOf(change);
      const form = { x, y: TOP + 16, width: Infinity, size, line: 17, color };
      let end = 0;
      painter.clipped(x, TOP + 16, room, HEIGHT, () => {
        end = paintWords(painter, words, form, context)[0].width;
      });
      drawChange(painter, change, context, [x, TOP + 33]);
      x += Math.max(widthOf(change), Math.min(end, room)) + GAP;
    }
  }

  #counted() {
    const { length } = this.all;
    const shown = this.changes.length;
    const part = shown < length ? `; ${shown} of them here` : ", before and after";
    return length ? `${plural(length, "block")}${part}` : "no block changed hands";
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

  write(context: DrawingContext) {
    say(this.count, this.#counted());
    this.items.forEach(({ element, words, painter }, i) => {
      const change = this.changes[i];
      hide(element, !change);
      if (!change) return;
      painter.begin(widthOf(change), CELL.height, context.unit, context.theme);
      drawChange(painter, change, context);
      patchChildren(words, wordNodes(wordsOf(change), context));
      tell(element, { block: change.block });
    });
  }
}

/** The number of a changed block, and what happened to it. */
const wordsOf = ({ block, spans }: BlockChange): Span[] => [
  { text: String(block), bold: true },
  { text: " " },
  ...spans,
];

/** The width of a change's picture: two cells, for a copy three. */
const widthOf = ({ copy }: BlockChange) =>
  2 * CELL.width + ARROW + (copy === null ? 0 : CELL.width + BESIDE);

function drawChange(
  painter: CanvasPainter,
  change: BlockChange,
  { frame, model, theme, selected }: DrawingContext,
  [left, top]: [number, number] = [0, 0],
) {
  const { block, before, after, copy } = change;
  const scene = { model, frame, selected };
  const box = (x: number): Rect => [left + x, top, CELL.width, CELL.height];
  drawSide(painter, scene, before, box(0));
  const y = top + CELL.height / 2;
  painter.line(left + CELL.width + 3, y, left + CELL.width + ARROW - 5, y, theme.ink, 1.4);
  painter.tip(left + CELL.width + ARROW - 3, y, "right", theme.ink);
  const x = CELL.width + ARROW;
  if (copy === null) {
    drawSide(painter, scene, after, box(x));
    return;
  }
  // A copy: one cell becomes two.
  drawSide(painter, scene, sideAfter(frame, block), box(x));
  drawSide(painter, scene, after, box(x + CELL.width + BESIDE));
}
