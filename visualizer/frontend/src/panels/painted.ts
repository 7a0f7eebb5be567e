/**
 * Words that are painted on a canvas while steps follow each other quickly. A browser takes 6 ms to style, lay out and
 * paint the words of a step as elements, and a canvas 1 ms. The elements are hidden meanwhile, so that no word of another
 * step can be read, and written again when the cursor rests. Elements that the reader uses stay.
 */

import type { BoardContext } from "../board/board.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, hide, setAttribute } from "../drawing/html.ts";
import { breakLines, drawLines, type Words } from "../drawing/text_lines.ts";

type Form = { x?: number; y?: number; width: number; size: number; line: number };

export const SWATCH = { side: 12, gap: 0.28, below: 1 }; // as in board.css
export const TITLE = { size: 12, bold: true };
const COUNT = { size: 11, before: 6.6 };

export class Painted {
  canvas = h("canvas.painted", { role: "img", hidden: true });
  painter = new CanvasPainter(this.canvas);
  words: HTMLElement;
  element: HTMLElement;
  #isShown = false;
  #label = "";

  /** `words` has the elements. */
  constructor(words: HTMLElement) {
    this.words = words;
    this.element = h("div.paintable", this.canvas, words);
  }

  /** Whether the keyboard or the pointer is there. */
  isUsed(active: Element | null) {
    return this.words.contains(active) || this.element.matches(":hover");
  }

  /** Shows the canvas, or else the elements. */
  show(isShown: boolean) {
    if (isShown) setAttribute(this.canvas, "aria-label", this.#label);
    if (this.#isShown === isShown) return;
    this.#isShown = isShown;
    hide(this.canvas, !isShown);
    this.words.toggleAttribute("data-painted", isShown);
  }

  /** Clears the canvas, which says `label` to screen readers. */
  begin(
    width: number,
    height: number,
    { theme, unit }: Pick<Look, "theme" | "unit">,
    label: string,
  ) {
    this.#label = label;
    return this.painter.begin(width, height, unit, theme);
  }
}

type Look = BoardContext & { unit: number };

/** The distance of the baseline from the top of a line, as a browser computes it for the board's font. */
export function baseline(size: number, line: number) {
  const [above, below] = [Math.round(0.905 * size), Math.round(0.212 * size)];
  return Math.floor((line - above - below) / 2) + above;
}

/** Paints words in lines, as elements would show them; returns the lines. */
export function paintWords(
  painter: CanvasPainter,
  words: Words[],
  { x = 0, y = 0, width, size, line, ...more }: Form & { color?: string; right?: number },
  { model, frame, selected }: Pick<BoardContext, "model" | "frame" | "selected">,
) {
  const lines = breakLines(painter, words, { width, size, swatch: SWATCH });
  drawLines(painter, lines, {
    ...more,
    x,
    y: y + baseline(size, line),
    size,
    line,
    swatch: SWATCH,
    selected,
    laneOf: (id) => model.laneOf(id, frame.step),
  });
  return lines;
}

/** Paints a panel's title and the count behind it. */
export function paintTitle(painter: CanvasPainter, title: string, count: string, y = 0) {
  const base = y + baseline(TITLE.size, 16);
  painter.text(title, 0, base, TITLE);
  const left = painter.measure(title, TITLE) + COUNT.before;
  const { size } = COUNT;
  const { muted: color } = painter.theme;
  painter.text(painter.cut(count, painter.width - left, { size }), left, base, { size, color });
}
