/** The step's sentence: large, first, and always as high as two lines, so that the board never moves. */

import { sentence } from "./model/index.js";
import { wordNodes } from "./words_html.js";

// Size and line height in px. Where a sentence needs more room it is set smaller, before it grows.
const SIZES = {
  wide: { reserved: 56, sizes: [[20, 28], [18, 28], [16, 19], [14, 18.6]] },
  narrow: { reserved: 92, sizes: [[17, 23], [15, 18.4], [13.5, 15.3]] },
};

/** Writes the sentence of the context's frame and sets it in the largest size that fits. */
export function fitSentence(element, context, narrow, unit) {
  element.replaceChildren(...wordNodes(sentence(context.model, context.frame.step), context));
  const { reserved, sizes } = SIZES[narrow ? "narrow" : "wide"];
  element.style.minHeight = `${reserved * unit}px`;
  for (const [size, line] of sizes) {
    element.style.fontSize = `${size * unit}px`;
    element.style.lineHeight = `${line * unit}px`;
    if (element.scrollHeight <= reserved * unit + 1) return;
  }
}
