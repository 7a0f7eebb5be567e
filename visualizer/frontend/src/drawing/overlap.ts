/**
 * Two thin lanes for asynchronous scheduling: what the scheduler does, and below it what the forward pass does. A step
 * is a box in each, odd steps filled and even ones outlined, so that the same step can be found in both.
 *
 * On the axis of steps, the column of step k has its scheduling above and the step that is computed meanwhile, k-1,
 * below. On wall time both are as long as they took, so that the overlap is seen; scheduling that takes no time is a
 * tick.
 */

import type { TimeName } from "../model/measures.ts";
import type { Model } from "../model/model.ts";
import type { CanvasPainter, Rect } from "./canvas_painter.ts";
import { type CursorScene, cursorBand, cursorLines, veil } from "./cursor.ts";
import type { Scale } from "./time_axis.ts";

/** still: a key of what is drawn */
type OverlapScene = CursorScene & { model: Model; still: string };

/** the scheduling or the pass of a step, and the column in which it happens */
type Box = { lane: "scheduler" | "pass"; step: number; column: number; x: number; width: number };

/** px */
type Extent = [from: number, to: number];

const BOX = 13;
const TOP = { scheduler: 2, pass: 2 + BOX + 4 };
export const OVERLAP_HEIGHT = TOP.pass + BOX + 8;

const TICK = 1.5; // px
const NUMBER = { size: 10 };
const BOTTOM = TOP.pass + BOX;

/** Draws both lanes. */
export function drawOverlap(painter: CanvasPainter, scene: OverlapScene) {
  const { scale, step, still, model } = scene;
  cursorBand(painter, scene, 0, OVERLAP_HEIGHT);
  const boxes = overlapBoxes(model, scale);
  const layer = painter.layer(still, (kept) => {
    for (const box of boxes) drawBox(kept, box);
  });
  const plot: Rect = [scale.left - 1, 0, scale.right - scale.left + 2, OVERLAP_HEIGHT];
  painter.clipped(...plot, () => {
    painter.lay(layer);
    veil(painter, scene, 0, BOTTOM + 2, painter.theme.ground);
    for (const box of boxes) if (box.column === step) drawNow(painter, box);
  });
  drawNames(painter, scene);
  cursorLines(painter, scene, 0, OVERLAP_HEIGHT);
}

/** The boxes in view. Where steps are narrower than a pixel, one box stands for those that fall on it. */
export function overlapBoxes(model: Model, scale: Scale) {
  const boxes: Box[] = [];
  const ends = { scheduler: -Infinity, pass: -Infinity };
  const add = (lane: Box["lane"], step: number, column: number, [x, end]: Extent) => {
    if (!(end >= scale.left && x <= scale.right) || end <= ends[lane] + 0.5) return;
    ends[lane] = end;
    boxes.push({ lane, step, column, x, width: end - x });
  };
  const first = Math.max(model.firstStep, scale.first - 1);
  const last = Math.min(model.lastStep, scale.last);
  for (let column = first; column <= last; column += 1) {
    const passes = model.measures.computed(column);
    const shares = scale.kind === "time" ? timesOf(model, scale, column) : sharesOf(scale, column);
    add("scheduler", column, column, shares.scheduler);
    passes.forEach((step, i) => add("pass", step, column, shares.pass(step, i, passes.length)));
  }
  return boxes;
}

/** On the axis of steps: the whole column above, and a part for each pass below. */
function sharesOf(
  scale: Scale,
  column: number,
): { scheduler: Extent; pass: (step: number, i: number, count: number) => Extent } {
  const slit = scale.width >= 4 ? 0.5 : 0;
  const x = scale.x(column);
  const width = scale.end(column) - x;
  return {
    scheduler: [x + slit, x + width - slit],
    pass: (_, i, count) => [x + (i / count) * width + slit, x + ((i + 1) / count) * width - slit],
  };
}

/** On wall time: from when to when the step was scheduled, and its pass ran. */
function timesOf(
  { measures, firstStep }: Model,
  scale: Scale,
  column: number,
): { scheduler: Extent; pass: (step: number) => Extent } {
  const at = (name: TimeName, step: number) =>
    Number(scale.moment(measures[name].at(step - firstStep)));
  const since = (from: number, to: number): Extent => [from, Math.max(to, from + TICK)];
  return {
    scheduler: since(at("start", column), at("scheduled", column)),
    pass: (step) => since(at("launched", step), at("ready", step)),
  };
}

function drawBox(painter: CanvasPainter, { lane, step, x, width }: Box) {
  const { shared, sharedBorder, muted, ink } = painter.theme;
  const y = TOP[lane];
  if (width < 4) {
    painter.fill(x, y, width, BOX, step % 2 ? sharedBorder : muted);
    return;
  }
  if (step % 2) painter.fill(x, y, width, BOX, shared);
  painter.frame(x, y, width, BOX, sharedBorder);
  writeNumber(painter, { lane, step, x, width }, ink);
}

/** What the cursor's step is about stands out. */
function drawNow(painter: CanvasPainter, box: Box) {
  const { ink, ground } = painter.theme;
  painter.fill(box.x, TOP[box.lane], box.width, BOX, ink);
  writeNumber(painter, box, ground);
}

function writeNumber(
  painter: CanvasPainter,
  { lane, step, x, width }: Omit<Box, "column">,
  color: string,
) {
  const words = String(step);
  if (painter.measure(words, NUMBER) + 4 <= width)
    painter.text(words, x + width / 2, TOP[lane] + 10, { ...NUMBER, color, align: "center" });
}

/** The names of the lanes and, where there is room, their steps at the cursor. */
function drawNames(painter: CanvasPainter, { model, scale, step }: OverlapScene) {
  const passes = model.measures.computed(step);
  const rows: [lane: Box["lane"], name: string, value: string][] = [
    ["scheduler", "scheduler", `step ${step}`],
    ["pass", "forward pass", passes.length ? `step ${passes.join(", ")}` : "none"],
  ];
  for (const [lane, name, value] of rows) {
    const y = TOP[lane] + 10;
    const end = painter.measure(name, { bold: true }) + 6;
    painter.text(name, 0, y, { bold: true });
    const written = painter.cut(value, scale.left - end - 2);
    if (written === value) painter.text(value, end, y, { color: painter.theme.muted });
  }
}
