/** The step's sentence, above the panels. It always has the height of two lines, so that the board does not move. */

import type { BoardContext } from "../board/board.ts";
import { patchChildren } from "../board/patch_children.ts";
import { SANS } from "../drawing/canvas_painter.ts";
import { tell } from "../drawing/html.ts";
import { wordNodes } from "../drawing/words_html.ts";
import { compose, plain } from "../model/index.ts";

/** Size and line height in px. A long sentence is set smaller before it takes more lines. */
const SIZES: Record<
  "wide" | "narrow",
  { reserved: number; sizes: [size: number, line: number][] }
> = {
  wide: {
    reserved: 56,
    sizes: [
      [20, 28],
      [18, 28],
      [16, 19],
      [14, 18.6],
    ],
  },
  narrow: {
    reserved: 92,
    sizes: [
      [17, 23],
      [15, 18.4],
      [13.5, 15.3],
    ],
  },
};
const SWATCH = { px: 12, em: 0.28 }; // its width and its margin
const LOOSE = 0.92; // lines end at words, so a line is not quite full

// Not on the page, where measuring would force a layout.
const ruler = globalThis.OffscreenCanvas && new OffscreenCanvas(1, 1).getContext("2d");
if (ruler) ruler.font = `500 100px ${SANS}`;

/** The widths of words in em: a sentence is new in each step, its words are not. */
const widths: Map<string, number> = new Map();
const MOST_WIDTHS = 4000;

function emsOf(sentence: string) {
  let sum = 0;
  for (const word of sentence.split(/(?<= )/)) {
    if (widths.size > MOST_WIDTHS) widths.clear();
    const width = widths.get(word) ?? Number(ruler?.measureText(word).width) / 100;
    widths.set(word, width);
    sum += width;
  }
  return sum;
}

/** Writes the sentence of the context's frame in the largest size that fits `width`. */
export function fitSentence(
  element: HTMLElement,
  context: BoardContext,
  { narrow, unit, width }: { narrow: boolean; unit: number; width: number },
) {
  const { kinds, spans } = compose(context.frame);
  patchChildren(element, wordNodes(spans, context));
  const { step, status } = context.frame;
  tell(element, { step, status, told: kinds.join(" ") });
  const { reserved, sizes } = SIZES[narrow ? "narrow" : "wide"];
  element.style.minHeight = `${reserved * unit}px`;
  // Measured on a canvas: reading the element's height would force a layout.
  const ems = emsOf(plain(spans));
  const names = spans.filter(({ request }) => request != null).length;
  const fits = ([size, line]: [size: number, line: number]) =>
    ems * size + names * (SWATCH.px + SWATCH.em * size) <=
    Math.floor(reserved / line) * Math.min(width, 64 * size) * LOOSE;
  const [size, line] = sizes.find(fits) ?? sizes[sizes.length - 1];
  element.style.fontSize = `${size * unit}px`;
  element.style.lineHeight = `${line * unit}px`;
}
