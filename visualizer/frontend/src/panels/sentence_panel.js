/** The step's sentence, above the panels. It always has the height of two lines, so that the board does not move. */

/** @import { BoardContext } from "../board/board.js" */
import { patchChildren } from "../board/patch_children.js";
import { SANS } from "../drawing/canvas_painter.js";
import { wordNodes } from "../drawing/words_html.js";
import { compose, plain } from "../model/index.js";

/**
 * Size and line height in px. A long sentence is set smaller before it takes more lines.
 *
 * @type {Record<"wide" | "narrow", {reserved: number, sizes: [size: number, line: number][]}>}
 */
const SIZES = {
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

const ruler = /** @type {CanvasRenderingContext2D} */ (
  globalThis.document?.createElement("canvas").getContext("2d")
);
// Set once, because setting a font makes the browser recalculate styles.
if (ruler) ruler.font = `500 100px ${SANS}`;

/**
 * Writes the sentence of the context's frame in the largest size that fits `width`.
 *
 * @param {HTMLElement} element @param {BoardContext} context
 * @param {{narrow: boolean, unit: number, width: number}} room
 */
export function fitSentence(element, context, { narrow, unit, width }) {
  const { kinds, spans } = compose(context.frame);
  patchChildren(element, wordNodes(spans, context));
  const { step, status } = context.frame;
  Object.assign(element.dataset, { step, status, told: kinds.join(" ") });
  const { reserved, sizes } = SIZES[narrow ? "narrow" : "wide"];
  element.style.minHeight = `${reserved * unit}px`;
  // Measured on a canvas: reading the element's height would force a layout.
  const ems = ruler.measureText(plain(spans)).width / 100;
  const names = spans.filter(({ request }) => request != null).length;
  /** @param {[size: number, line: number]} form */
  const fits = ([size, line]) =>
    ems * size + names * (SWATCH.px + SWATCH.em * size) <=
    Math.floor(reserved / line) * Math.min(width, 64 * size) * LOOSE;
  const [size, line] = sizes.find(fits) ?? sizes[sizes.length - 1];
  element.style.fontSize = `${size * unit}px`;
  element.style.lineHeight = `${line * unit}px`;
}
