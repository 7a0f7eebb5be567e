/** Spans of words on a canvas, in lines: names in bold behind their swatches. */

import { HALF_DOT } from "../model/knowledge.ts";
import type { Span } from "../model/words.ts";
import type { CanvasPainter } from "./canvas_painter.ts";

type Run = { text: string; bold: boolean; request?: number; color?: string };

/** words in a colour of their own */
export type Words = Span & { color?: string };

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
  swatch?: Swatch;
  color?: string;
  right?: number; // where lines end, instead of where they begin
}

/** its side, what follows it, and how far it reaches below the baseline, in px, em and px */
export type Swatch = { side: number; gap: number; below: number };

const swatchOf = (size: number): Swatch => ({ side: 0.72 * size, gap: 0.24, below: 0.02 * size });
const DOT = 0.72;

/** Breaks spans into lines of at most `width`; a name stays with its swatch and its punctuation. */
export function breakLines(
  painter: CanvasPainter,
  spans: Words[],
  { width, size, swatch = swatchOf(size) }: { width: number; size: number; swatch?: Swatch },
): Line[] {
  const lines: Line[] = [{ runs: [], width: 0 }];
  const space = painter.measure(" ", { size });
  for (const word of wordsOf(spans)) {
    const runs = word.map((run) => ({ ...run, width: runWidth(painter, run, size, swatch) }));
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

function runWidth(
  painter: CanvasPainter,
  { text, bold, request }: Run,
  size: number,
  swatch: Swatch,
) {
  if (text === HALF_DOT) return DOT * size;
  return (
    (request == null ? 0 : swatch.side + swatch.gap * size) + painter.measure(text, { size, bold })
  );
}

const PARTS = new RegExp(`( |${HALF_DOT})`);

/** The words of spans, each a list of runs: "r6," is a name and a comma. */
function wordsOf(spans: Words[]): Run[][] {
  const words: Run[][] = [];
  let joins = false; // the next run belongs to the last word
  const add = (run: Run) => {
    if (joins) words.at(-1)?.push(run);
    else words.push([run]);
    joins = true;
  };
  for (const { text, bold, request, color } of spans) {
    if (request != null) add({ text, bold: true, request });
    else
      for (const part of text.split(PARTS))
        if (part === " ") joins = false;
        else if (part) add({ text: part, bold: !!bold, color });
  }
  return words;
}

/** Draws lines. */
export function drawLines(
  painter: CanvasPainter,
  lines: Line[],
  { x, y, size, line, laneOf, selected, swatch = swatchOf(size), color: usual, right }: Place,
) {
  const { side, gap, below } = swatch;
  lines.forEach(({ runs, width: whole }, index) => {
    const base = y + index * line;
    const start = right === undefined ? x : right - whole;
    for (const { text, bold, request, color, x: at, width } of joined(runs)) {
      let left = start + at;
      if (text === HALF_DOT) {
        drawHalfDot(painter, left, base, DOT * size);
        continue;
      }
      if (request != null) {
        painter.mark(left, base - side + below, side, side, laneOf(request));
        if (request === selected)
          painter.line(
            left,
            base + 0.26 * size,
            left + width,
            base + 0.26 * size,
            painter.theme.ink,
            1.4,
          );
        left += side + gap * size;
      }
      const own = bold ? undefined : usual; // a name and what is bold have ink
      painter.text(text, left, base, { size, bold, color: color ?? own });
    }
  });
}

/** Neighbouring words in one style as one run: each text that is drawn costs time. */
function joined(runs: Line["runs"]) {
  const all: Line["runs"] = [];
  for (const run of runs) {
    const last = all.at(-1);
    const isAlike =
      last &&
      last.request == null &&
      run.request == null &&
      last.bold === run.bold &&
      last.color === run.color &&
      last.text !== HALF_DOT &&
      run.text !== HALF_DOT;
    if (isAlike) {
      const end = last.x + last.width;
      last.text += `${run.x > end ? " " : ""}${run.text}`;
      last.width = run.x + run.width - last.x;
    } else all.push({ ...run });
  }
  return all;
}

/** The sign of an inferred statement: a ring, its right half filled. */
function drawHalfDot(painter: CanvasPainter, x: number, base: number, side: number) {
  const { context, theme } = painter;
  const [radius, middle] = [side / 2, base - side / 2];
  context.fillStyle = context.strokeStyle = theme.ink;
  context.lineWidth = 1;
  context.beginPath();
  context.arc(x + radius, middle, radius - 0.5, 0, 7);
  context.stroke();
  context.beginPath();
  context.arc(x + radius, middle, radius - 0.5, -Math.PI / 2, Math.PI / 2);
  context.fill();
}
