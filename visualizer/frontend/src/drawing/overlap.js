/**
 * Two thin lanes for asynchronous scheduling: what the scheduler does, and below it what the forward pass does. A step
 * is a box in each, odd steps filled and even ones outlined, so that the same step can be found in both.
 *
 * On the axis of steps, the column of step k has its scheduling above and the step that is computed meanwhile, k-1,
 * below. On wall time both are as long as they took, so that the overlap is seen; scheduling that takes no time is a
 * tick.
 *
 * @typedef {CursorScene & {model: Model, still: string}} OverlapScene  still: a key of what is drawn
 * @typedef {{lane: "scheduler" | "pass", step: number, column: number, x: number, width: number}} Box
 *   the scheduling or the pass of a step, and the column in which it happens
 * @typedef {[from: number, to: number]} Extent  px
 */

/** @import { TimeName } from "../model/measures.js" */
/** @import { Model } from "../model/model.js" */
/** @import { CanvasPainter, Rect } from "./canvas_painter.js" */
/** @import { CursorScene } from "./cursor.js" */
/** @import { Scale } from "./time_axis.js" */
import { cursorBand, cursorLines, veil } from "./cursor.js";

const BOX = 13;
const TOP = { scheduler: 2, pass: 2 + BOX + 4 };
export const OVERLAP_HEIGHT = TOP.pass + BOX + 8;

const TICK = 1.5; // px
const NUMBER = { size: 10 };
const BOTTOM = TOP.pass + BOX;

/** Draws both lanes. @param {CanvasPainter} painter @param {OverlapScene} scene */
export function drawOverlap(painter, scene) {
  const { scale, step, still, model } = scene;
  cursorBand(painter, scene, 0, OVERLAP_HEIGHT);
  const boxes = overlapBoxes(model, scale);
  const layer = painter.layer(still, (kept) => {
    for (const box of boxes) drawBox(kept, box);
  });
  /** @type {Rect} */
  const plot = [scale.left - 1, 0, scale.right - scale.left + 2, OVERLAP_HEIGHT];
  painter.clipped(...plot, () => {
    painter.lay(layer);
    veil(painter, scene, 0, BOTTOM + 2, painter.theme.ground);
    for (const box of boxes) if (box.column === step) drawNow(painter, box);
  });
  drawNames(painter, scene);
  cursorLines(painter, scene, 0, OVERLAP_HEIGHT);
}

/**
 * The boxes in view. Where steps are narrower than a pixel, one box stands for those that fall on it.
 *
 * @param {Model} model @param {Scale} scale
 */
export function overlapBoxes(model, scale) {
  /** @type {Box[]} */
  const boxes = [];
  const ends = { scheduler: -Infinity, pass: -Infinity };
  /** @param {Box["lane"]} lane @param {number} step @param {number} column @param {Extent} extent */
  const add = (lane, step, column, [x, end]) => {
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

/**
 * On the axis of steps: the whole column above, and a part for each pass below.
 *
 * @param {Scale} scale @param {number} column
 * @returns {{scheduler: Extent, pass: (step: number, i: number, count: number) => Extent}}
 */
function sharesOf(scale, column) {
  const slit = scale.width >= 4 ? 0.5 : 0;
  const x = scale.x(column);
  const width = scale.end(column) - x;
  return {
    scheduler: [x + slit, x + width - slit],
    pass: (_, i, count) => [x + (i / count) * width + slit, x + ((i + 1) / count) * width - slit],
  };
}

/**
 * On wall time: from when to when the step was scheduled, and its pass ran.
 *
 * @param {Model} model @param {Scale} scale @param {number} column
 * @returns {{scheduler: Extent, pass: (step: number) => Extent}}
 */
function timesOf({ measures, firstStep }, scale, column) {
  /** @param {TimeName} name @param {number} step */
  const at = (name, step) => Number(scale.moment(measures[name][step - firstStep]));
  /** @param {number} from @param {number} to @returns {Extent} */
  const since = (from, to) => [from, Math.max(to, from + TICK)];
  return {
    scheduler: since(at("start", column), at("scheduled", column)),
    pass: (step) => since(at("launched", step), at("ready", step)),
  };
}

/** @param {CanvasPainter} painter @param {Box} box */
function drawBox(painter, { lane, step, x, width }) {
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

/** What the cursor's step is about stands out. @param {CanvasPainter} painter @param {Box} box */
function drawNow(painter, box) {
  const { ink, ground } = painter.theme;
  painter.fill(box.x, TOP[box.lane], box.width, BOX, ink);
  writeNumber(painter, box, ground);
}

/** @param {CanvasPainter} painter @param {Omit<Box, "column">} box @param {string} color */
function writeNumber(painter, { lane, step, x, width }, color) {
  const words = String(step);
  if (painter.measure(words, NUMBER) + 4 <= width)
    painter.text(words, x + width / 2, TOP[lane] + 10, { ...NUMBER, color, align: "center" });
}

/**
 * The names of the lanes and, where there is room, their steps at the cursor.
 *
 * @param {CanvasPainter} painter @param {OverlapScene} scene
 */
function drawNames(painter, { model, scale, step }) {
  const passes = model.measures.computed(step);
  /** @type {[lane: Box["lane"], name: string, value: string][]} */
  const rows = [
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
