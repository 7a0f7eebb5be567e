/**
 * Spans of words on a canvas, in lines: names in bold behind their swatches.
 *
 * @typedef {{text: string, bold: boolean, request?: number}} Run
 * @typedef {{runs: (Run & {x: number, width: number})[], width: number}} Line  x from the left of the line
 *
 * @typedef {object} Place  of lines
 * @property {number} x
 * @property {number} y       of the first baseline
 * @property {number} size    of the font
 * @property {number} line    the height of a line
 * @property {(request: number) => number | null} laneOf  the lane whose mark a request has
 * @property {number | null} selected
 */

/** @import { Span } from "../model/words.js" */
/** @import { CanvasPainter } from "./canvas_painter.js" */

const SWATCH = 0.72; // em
const GAP = 0.24;

/**
 * Breaks spans into lines of at most `width`; a name stays with its swatch and its punctuation.
 *
 * @param {CanvasPainter} painter @param {Span[]} spans @param {{width: number, size: number}} room
 * @returns {Line[]}
 */
export function breakLines(painter, spans, { width, size }) {
  /** @type {Line[]} */
  const lines = [{ runs: [], width: 0 }];
  const space = painter.measure(" ", { size });
  for (const word of wordsOf(spans)) {
    const runs = word.map((run) => ({ ...run, width: runWidth(painter, run, size) }));
    const wide = runs.reduce((sum, run) => sum + run.width, 0);
    let line = /** @type {Line} */ (lines.at(-1));
    if (line.runs.length && line.width + space + wide > width) {
      line = { runs: [], width: 0 };
      lines.push(line);
    }
    if (line.runs.length) line.width += space;
    for (const run of runs) {
      line.runs.push({ ...run, x: line.width });
      line.width += run.width;
    }
  }
  return lines;
}

/** @param {CanvasPainter} painter @param {Run} run @param {number} size */
function runWidth(painter, { text, bold, request }, size) {
  const swatch = request == null ? 0 : (SWATCH + GAP) * size;
  return swatch + painter.measure(text, { size, bold });
}

/** The words of spans, each a list of runs: "r6," is a name and a comma. @param {Span[]} spans @returns {Run[][]} */
function wordsOf(spans) {
  /** @type {Run[][]} */
  const words = [];
  let joins = false; // the next run belongs to the last word
  for (const { text, bold, request } of spans) {
    if (request != null) {
      const run = { text, bold: true, request };
      if (joins) words.at(-1)?.push(run);
      else words.push([run]);
      joins = true;
      continue;
    }
    text.split(/( )/).forEach((part) => {
      if (part === " ") joins = false;
      else if (part) {
        const run = { text: part, bold: !!bold };
        if (joins) words.at(-1)?.push(run);
        else words.push([run]);
        joins = true;
      }
    });
  }
  return words;
}

/**
 * Draws lines.
 *
 * @param {CanvasPainter} painter @param {Line[]} lines
 * @param {Place} place
 */
export function drawLines(painter, lines, { x, y, size, line, laneOf, selected }) {
  lines.forEach(({ runs }, index) => {
    const base = y + index * line;
    for (const { text, bold, request, x: at, width } of runs) {
      let left = x + at;
      if (request != null) {
        const side = SWATCH * size;
        painter.mark(left, base - side + 0.02 * size, side, side, laneOf(request));
        if (request === selected)
          painter.line(
            left,
            base + 0.26 * size,
            left + width,
            base + 0.26 * size,
            painter.theme.ink,
            1.4,
          );
        left += (SWATCH + GAP) * size;
      }
      painter.text(text, left, base, { size, bold });
    }
  });
}
