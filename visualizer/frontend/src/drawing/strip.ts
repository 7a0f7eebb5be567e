/**
 * The strip: moments, memory, tokens per step and seats over all steps. Dragging on it moves the cursor.
 *
 * While steps are wide enough, it shares its axis and its cursor with the lanes below. Otherwise it is an
 * overview of the whole log, with a window that marks the part that the lanes show.
 */

import { most, type Numbers } from "../model/columns.ts";
import { duration } from "../model/duration.ts";
import type { Frame } from "../model/frame.ts";
import { HAPPENED } from "../model/happenings.ts";
import { knowledgeWords, lacks } from "../model/knowledge.ts";
import type { Model } from "../model/model.ts";
import type { CanvasPainter, Paint, Rect } from "./canvas_painter.ts";
import { type CursorScene, cursorBand, cursorLines, veil } from "./cursor.ts";
import { drawMoments } from "./moment_marks.ts";
import type { Scale, View } from "./time_axis.ts";

interface StripScene extends CursorScene {
  model: Model;
  frame: Frame;
  narrow: boolean;
  width: number;
  overview: boolean; // it shows the whole log, the lanes a part
  window: View | null; // that part
  still: string; // a key that changes when the measures have to be drawn again
}

export interface Column {
  step: number; // the first
  x: number;
  width: number;
  from: number; // indexes into the measures
  to: number;
}

export const STRIP_HEIGHT = 150;

const FLAG = 24;
const PLAYBACK = 116; // px that the playback buttons need, left of the cursor's flag
const GAP = 7;
const ROWS = { moments: 14, memory: 30, tokens: 34, seats: 24 };
const MEMORY = FLAG + ROWS.moments;
const TOP = {
  memory: MEMORY,
  tokens: MEMORY + ROWS.memory + GAP,
  seats: MEMORY + ROWS.memory + GAP + ROWS.tokens + GAP,
};
const BOTTOM = TOP.seats + ROWS.seats;
const GAP_WIDTH = 5;

/** Draws the strip. */
export function drawStrip(painter: CanvasPainter, scene: StripScene) {
  const { model, scale } = scene;
  // On one axis with the lanes, the cursor continues into them; an overview has its own.
  const end = scene.overview ? BOTTOM : STRIP_HEIGHT;
  cursorBand(painter, scene, FLAG - 6, end);
  const measures = painter.layer(scene.still, (layer) => {
    const columns = columnsOf(model, scale);
    drawMoments(layer, scene, columns, FLAG - 1);
    drawMemory(layer, scene, columns);
    drawTokens(layer, scene, columns);
    drawSeatColumns(layer, scene, columns);
    drawGaps(layer, scene, columns);
  });
  painter.lay(measures);
  veil(painter, scene, FLAG - 3, BOTTOM - FLAG + 3, painter.theme.ground);
  drawLimits(painter, scene);
  if (scale.kind === "time") drawPauses(painter, scene, columnsOf(model, scale));
  drawWords(painter, scene);
  if (scene.window) drawWindow(painter, scale, scene.window);
  cursorLines(painter, scene, 12, end);
  drawFlag(painter, scene);
}

/** The steps drawn as one column: one step, or all steps that begin on one pixel. A pause ends a column of time. */
export function columnsOf(model: Model, scale: Scale) {
  const columns: Column[] = [];
  const first = Math.max(model.firstStep, scale.first);
  const last = Math.min(model.lastStep, scale.last);
  const perColumn = Math.max(1, Math.ceil(1 / scale.width));
  for (let step = first, end: number; step <= last; step = end + 1) {
    end = step + perColumn - 1;
    if (scale.kind === "time") end = Math.max(step, scale.stepAt(scale.x(step) + 1));
    end = Math.min(last, end);
    columns.push({
      step,
      x: scale.x(step),
      width: scale.end(end) - scale.x(step),
      from: step - model.firstStep,
      to: end - model.firstStep,
    });
  }
  return columns;
}

/** The pause between two steps, with its duration if it fits. Memory stays as it was. */
function drawPauses(painter: CanvasPainter, { model, scale }: StripScene, columns: Column[]) {
  const { measures, firstStep } = model;
  const { muted: color } = painter.theme;
  const y = TOP.tokens + ROWS.tokens;
  for (let i = 1; i < columns.length; i += 1) {
    const before = columns[i - 1];
    const left = Math.max(before.x + before.width, scale.left);
    const right = Math.min(columns[i].x, scale.right);
    if (right - left < 12) continue;
    const took = measures.start.at(columns[i].step - firstStep) - measures.end.at(before.to);
    painter.line(left + 2, y - 0.5, right - 2, y - 0.5, color, 1, [1.5, 3]);
    const waits = measures.waiting.at(before.to) || measures.running.at(before.to);
    const words = `${waits ? "held" : "idle"} ${duration(took)}`;
    if (painter.measure(words) + 8 < right - left)
      painter.text(words, (left + right) / 2, y - 6, { color, align: "center" });
  }
}

const highest = (values: Numbers) => Math.max(1, most(values, 0, values.length - 1));

function drawMemory(painter: CanvasPainter, { model, scale }: StripScene, columns: Column[]) {
  const { used, cached } = model.measures;
  const unit = ROWS.memory / Math.max(1, model.settings.num_blocks);
  const bottom = TOP.memory + ROWS.memory;
  const { theme } = painter;
  // One outline each, because separate columns would show seams.
  const { kind } = scale;
  const wide = columns.map((column, i) => {
    const next = columns[i + 1]?.x ?? column.x + column.width;
    return kind === "time" ? { ...column, width: next - column.x } : column;
  });
  const heldTop = columns.map(
    ({ to }) => bottom - (used.at(to) && Math.max(1, used.at(to) * unit)),
  );
  const idleTop = columns.map((column, i) => heldTop[i] - cached.at(column.to) * unit);
  area(painter, wide, idleTop, heldTop, painter.hatch(theme.hatch));
  area(
    painter,
    wide,
    heldTop,
    heldTop.map(() => bottom),
    theme.used,
  );
}

/** Fills the steps between two heights per column. */
function area(
  { context }: CanvasPainter,
  columns: Column[],
  tops: number[],
  bottoms: number[],
  paint: Paint,
) {
  context.fillStyle = paint;
  context.beginPath();
  columns.forEach(({ x, width }, i) => {
    context.lineTo(x, tops[i]);
    context.lineTo(x + width, tops[i]);
  });
  for (let i = columns.length - 1; i >= 0; i -= 1) {
    const { x, width } = columns[i];
    context.lineTo(x + width, bottoms[i]);
    context.lineTo(x, bottoms[i]);
  }
  context.fill();
}

function drawTokens(painter: CanvasPainter, { model, scale }: StripScene, columns: Column[]) {
  const { decode, prefill, catchup } = model.measures;
  const unit = ROWS.tokens / (limitsOf(model).tokens ?? highest(model.measures.tokens));
  const bottom = TOP.tokens + ROWS.tokens;
  const { theme } = painter;
  const inHues = scale.width >= 4;
  const slit = scale.width >= 4 ? 0.5 : 0;
  for (const column of columns) {
    const width = Math.max(column.width - 2 * slit, 0.5);
    let y = bottom;
    const stack = (tokens: number, gap: number = 0): Rect => {
      y -= tokens * unit;
      return [column.x + slit, y, width, Math.max(0.6, tokens * unit - gap)];
    };
    const decodes = most(decode, column.from, column.to);
    if (decodes) painter.fill(...stack(decodes), theme.muted);
    if (inHues) {
      for (const chunk of model.measures.chunks(column.step)) {
        painter.mark(...stack(chunk.count, 0.7), model.laneOf(chunk.request));
      }
    }
    if (!inHues || !model.requests.length) {
      const rest = Math.max(...[prefill, catchup].map((one) => most(one, column.from, column.to)));
      if (rest) painter.fill(...stack(rest), theme.used);
    }
  }
}

/** Taken seats are grey, empty ones outlined. */
function drawSeatColumns(painter: CanvasPainter, { model, scale }: StripScene, columns: Column[]) {
  const { seats } = model.measures;
  const all = limitsOf(model).seats;
  if (!all) return;
  const bottom = TOP.seats + ROWS.seats;
  const { theme } = painter;
  const isWide = scale.width >= 5;
  for (const { x, width, from, to } of columns) {
    const height = ROWS.seats * Math.min(1, most(seats, from, to) / all);
    const slit = isWide ? 0.5 : 0;
    if (height) painter.fill(x + slit, bottom - height, width - 2 * slit, height, theme.used);
    if (isWide && height < ROWS.seats)
      painter.frame(x + slit, TOP.seats, width - 2 * slit, ROWS.seats - height, theme.rule);
  }
  painter.line(scale.left, bottom + 0.5, scale.right, bottom + 0.5, theme.rule);
}

/** A break in the ink after each step in which messages of the log are missing. */
function drawGaps(painter: CanvasPainter, { model }: StripScene, columns: Column[]) {
  const { ground, ink } = painter.theme;
  for (const { x, width, from, to } of columns) {
    let bits = 0;
    for (let i = from; i <= to; i += 1) bits |= model.measures.happened.at(i);
    if (!(bits & HAPPENED.missing)) continue;
    const end = x + width;
    painter.fill(end - GAP_WIDTH / 2, MEMORY, GAP_WIDTH, BOTTOM - MEMORY + 1, ground);
    for (const at of [end - GAP_WIDTH / 2, end + GAP_WIDTH / 2])
      painter.line(at, MEMORY, at, BOTTOM, ink, 1, [2, 2]);
  }
}

const longest: WeakMap<Model, { last: number; highest: number }> = new WeakMap();

/** The queue of a step that has not begun still grows, so only the steps before it are cached. */
export function longestQueue(model: Model) {
  const { waiting, length } = model.measures;
  const last = length - 1;
  let known = longest.get(model);
  if (known?.last !== last) {
    known = { last, highest: most(waiting, 0, last - 1) };
    longest.set(model, known);
  }
  return Math.max(known.highest, waiting.at(last));
}

function drawLimits(painter: CanvasPainter, { model, scale, narrow }: StripScene) {
  const { theme } = painter;
  const { memory, tokens, seats } = limitsOf(model);
  const limits = [
    [TOP.memory, memory],
    [TOP.tokens, tokens],
    [TOP.seats, seats],
  ];
  for (const [y, limit] of limits as [number, number | undefined][]) {
    if (!limit) continue;
    const words = `of ${limit}`;
    painter.line(scale.left, y + 0.5, scale.right, y + 0.5, theme.faint, 1, [2, 2]);
    if (!narrow) painter.text(words, scale.right + 4, y + 4, { color: theme.muted });
  }
  if (!narrow) drawFullest(painter, model, scale);
}

/** Writes "full: 64" beside the first step that used the whole budget, if there is room. */
function drawFullest(painter: CanvasPainter, model: Model, scale: Scale) {
  const { tokens, length } = model.measures;
  const { tokens: budget } = limitsOf(model);
  if (!budget) return;
  const words = `full: ${budget}`;
  const needed = painter.measure(words, { size: 10.5 }) + 6;
  for (let i = 0; i < length; i += 1) {
    if (tokens.at(i) < budget) continue;
    const x = scale.end(model.firstStep + i);
    const covered = Math.ceil(needed / scale.width);
    let room = x >= scale.left && x + needed < scale.right;
    for (let k = i + 1; room && k <= i + covered && k < length; k += 1)
      room = tokens.at(k) < 0.68 * budget;
    if (room)
      painter.text(words, x + 3, TOP.tokens + 10, { size: 10.5, color: painter.theme.muted });
    return;
  }
}

/** What is full, as far as the log knows it. */
function limitsOf(model: Model): Record<"memory" | "tokens" | "seats", number | undefined> {
  const { num_blocks: memory, token_budget: tokens, max_batch_size: seats } = model.settings;
  if (!lacks(model, "settings")) return { memory, tokens, seats };
  const isKnown = !lacks(model, "free_blocks");
  return { memory: isKnown ? memory : undefined, tokens: undefined, seats: undefined };
}

/** "6 of 64". */
export const outOf = (some: number, limit: number | undefined) =>
  limit ? `${some} of ${limit}` : `${some}`;

function drawWords(painter: CanvasPainter, { frame, model, narrow, scale }: StripScene) {
  const { theme } = painter;
  const { unshared, shared, cached } = frame.counts;
  const used = lacks(model, "block_tables") ? [] : [`${unshared + shared} used`];
  const both = [...used, ...(lacks(model, "prefix_tree") ? [] : [`${cached} cached`])];
  const memory = both.join(", ");
  const isShort = narrow || painter.measure(memory) > scale.left - 4;
  const { unknown } = knowledgeWords;
  const rows: [y: number, name: string, value: string][] = [
    [TOP.memory + 11, "memory", (isShort ? memory.replace(" used,", " +") : memory) || unknown],
    [
      TOP.tokens + 13,
      narrow ? "tokens" : "tokens per step",
      lacks(model, "scheduled_tokens")
        ? unknown
        : outOf(frame.budget.tokens, limitsOf(model).tokens),
    ],
    [
      TOP.seats + 9,
      "seats",
      lacks(model, "admissions")
        ? unknown
        : `${outOf(frame.seats.taken, limitsOf(model).seats)}${narrow ? "" : " in the step"}`,
    ],
  ];
  painter.text("moments", 0, FLAG + 8, { bold: true });
  for (const [y, name, value] of rows) {
    painter.text(name, 0, y, { bold: true });
    painter.text(value, 0, y + 13, { color: theme.muted });
  }
}

function drawWindow(painter: CanvasPainter, scale: Scale, window: View) {
  const left = Math.min(scale.at(window.from), scale.right - 6);
  const width = Math.max(6, scale.at(window.to) - left);
  painter.frame(left, FLAG - 4, width, BOTTOM - FLAG + 8, painter.theme.ink, 1.5);
}

/** On a time axis the flag has the step's duration. */
function flagOf(model: Model, step: number, kind: Scale["kind"]) {
  const { start, end } = model.measures;
  const took = end.at(step - model.firstStep) - start.at(step - model.firstStep);
  return kind === "time" && took >= 0 ? `step ${step}: ${duration(took)}` : `step ${step}`;
}

function drawFlag(painter: CanvasPainter, { model, scale, step, width }: StripScene) {
  const words = flagOf(model, step, scale.kind);
  const box = painter.measure(words, { bold: true }) + 10;
  const centre = scale.middle(step);
  const left = Math.min(Math.max(centre - box / 2, scale.left - 18, PLAYBACK), width - box);
  painter.fill(left, 2, box, 15, painter.theme.ink);
  painter.text(words, left + box / 2, 13.5, {
    bold: true,
    align: "center",
    color: painter.theme.ground,
  });
}
