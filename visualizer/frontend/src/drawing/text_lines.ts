/** Spans of words on a canvas, in lines: names in bold behind their swatches. */

import type { Span } from "../model/words.ts";
import type { CanvasPainter } from "./canvas_painter.ts";

type Run = { text: string; bold: boolean; request?: number };

/** x from the left of the line */
export type Line = { runs: (Run & { x: number; width: number })[]; width: number };

/** of lines */
interface Place {
  x: number;
  y: number; // of the first baseline
  size: number; // of the font
  line: number; // the height of a line
  laneOf: (request: number) => number | null; // the lane whose mark a request has
  selected: number | null;
}

const SWATCH = 0.72; // em
const GAP = 0.24;

/** Breaks spans into lines of at most `width`; a name stays with its swatch and its punctuation. */
export function breakLines(
  painter: CanvasPainter,
  spans: Span[],
  { width, size }: { width: number; size: number },
): Line[] {
  const lines: Line[] = [{ runs: [], width: 0 }];
  const space = painter.measure(" ", { size });
  for (const word of wordsOf(spans)) {
    const runs = word.map((run) => ({ ...run, width: runWidth(painter, run, size) }));
    const wide = runs.reduce((sum, run) => sum + run.width, 0);
    let line = lines.at(-1) as Line;
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

function runWidth(painter: CanvasPainter, { text, bold, request }: Run, size: number) {
  const swatch = request == null ? 0 : (SWATCH + GAP) * size;
  return swatch + painter.measure(text, { size, bold });
}

/** The words of spans, each a list of runs: "r6," is a name and a comma. */
function wordsOf(spans: Span[]): Run[][] {
  const words: Run[][] = [];
  let joins = false; // the next run belongs to the last word
  const add = (run: Run) => {
    if (joins) words.at(-1)?.push(run);
    else words.push([run]);
    joins = true;
  };
  for (const { text, bold, request } of spans) {
    if (request != null) add({ text, bold: true, request });
    else
      for (const part of text.split(/( )/))
        if (part === " ") joins = false;
        else if (part) add({ text: part, bold: !!bold });
  }
  return words;
}

/** Draws lines. */
export function drawLines(
  painter: CanvasPainter,
  lines: Line[],
  { x, y, size, line, laneOf, selected }: Place,
) {
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
