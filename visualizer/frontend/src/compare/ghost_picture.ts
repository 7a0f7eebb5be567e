/**
 * Two runs in one picture, on one axis: the lanes of A as always, those of B as outlines below them from the fork
 * on, and the gap between the two ends of each request.
 */

import type { CanvasPainter } from "../drawing/canvas_painter.ts";
import { drawLife } from "../drawing/lane.ts";
import type { Stay } from "../drawing/lane_packing.ts";
import type { Theme } from "../drawing/palette.ts";
import type { Scale } from "../drawing/time_axis.ts";
import { drawAxis } from "../drawing/timeline.ts";
import { drawWaits } from "../drawing/wait_line.ts";
import type { Break } from "../drawing/wall_axis.ts";
import { duration } from "../model/duration.ts";
import type { Model } from "../model/model.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { drawOutline } from "./ghost_lane.ts";
import { type GhostLayout, LANE } from "./ghost_layout.ts";
import { type GhostRow, gapWords, spanOf } from "./ghost_rows.ts";

interface GhostScene {
  models: Model[];
  scales: Scale[];
  rows: GhostRow[];
  layout: GhostLayout;
  names: string[];
  fork: number | null; // a step
  ends: number[]; // of both runs, on the axis
  breaks: Break[][]; // of both runs: where the axis leaves out time without a step
  selected: number; // a row, or -1
  narrow: boolean;
}

/** of memory, in px */
type HeightOf = (side: number, blocks: number) => number;

const SHADES = {
  light: { sooner: "#f9dcd6", later: "#f4eabb" },
  dark: { sooner: "#4b2f2a", later: "#433f1a" },
};
/** The gap if a request ends sooner in B, and later. */
export const shadesOf = ({ name }: Theme) => SHADES[name];
const SMALL = { size: 10.5 };
const BOLD_FROM = 1 / 3; // of the largest gap

/** Draws the picture. */
export function drawGhost(painter: CanvasPainter, scene: GhostScene) {
  const { layout, rows, scales, models, fork } = scene;
  const forkX = fork == null ? null : scales[0].x(fork);
  if (forkX != null) drawAlike(painter, layout, forkX);
  drawMemory(painter, scene);
  const lanes = rows.map(({ a }, index) => stayOf(a, index, models[0]));
  const inLane = {
    ...scene,
    scale: scales[0],
    model: models[0],
    laneHeight: LANE,
    packing: { lanes: lanes.map((stay) => [stay]) },
    end: scales[0].right,
  };
  rows.forEach((row, index) => {
    drawGround(painter, scene, row, index);
    if (row.a) {
      drawWaits(painter, scales[0], row.a, layout.base(index), models[0].lastStep);
      drawLife(painter, inLane, lanes[index], layout.base(index));
    }
    const other = { scale: scales[1], model: models[1] };
    const from = row.a ? (fork ?? Infinity) : -Infinity;
    if (row.b) drawOutline(painter, other, marked(row.b, row.a), layout.below(index), from);
    drawWords(painter, scene, row, index);
  });
  drawEnds(painter, scene);
  drawBreaks(painter, scene);
  if (fork != null && forkX != null) drawFork(painter, scene, fork, forkX);
  painter.context.translate(0, layout.bottom);
  drawAxis(painter, { ...inLane, name: "busy time" });
  painter.context.translate(0, -layout.bottom);
}

/** B's request with the mark of A's, because a row is one request. */
const marked = (b: RequestSpan, a: RequestSpan | null) => ({
  segments: b.segments,
  lane: (a ?? b).lane,
});

function stayOf(span: RequestSpan | null, lane: number, { firstStep, lastStep }: Model): Stay {
  const from = span?.forked?.step ?? span?.arrived ?? firstStep;
  const to = Math.max(from, span?.finished?.step ?? lastStep);
  return { index: span?.index ?? -1, lane, from, to };
}

/** The band of the steps that both runs decided alike. */
function drawAlike(painter: CanvasPainter, { left, bottom, memory }: GhostLayout, x: number) {
  painter.fill(left, memory.top, Math.max(0, x - left), bottom - memory.top, painter.theme.band);
}

/** The blocks in use: of A as an area, of B as a line from the fork on, each with its capacity. */
function drawMemory(
  painter: CanvasPainter,
  { models, scales, layout, names, fork, narrow }: GhostScene,
) {
  const { theme } = painter;
  const { top, bottom } = layout.memory;
  const bytes = models.map(({ settings }) => settings.num_blocks * settings.block_size);
  const height: HeightOf = (side, blocks) =>
    (blocks * models[side].settings.block_size * (bottom - top)) / Math.max(...bytes);
  for (const { left, right, value } of columnsOf(models[0], scales[0]))
    painter.fill(left, bottom - height(0, value), right - left + 0.5, height(0, value), theme.used);
  const from = Math.max(fork ?? Infinity, models[1].firstStep);
  let last = null;
  for (const { step, left, right, value } of columnsOf(models[1], scales[1])) {
    if (step < from) continue;
    const y = bottom - height(1, value);
    if (last != null) painter.line(left, last, left, y, theme.ink, 1.3);
    painter.line(left, y, right, y, theme.ink, 1.3);
    last = y;
  }
  drawCapacities(painter, { models, layout, names }, height);
  painter.text(narrow ? "memory" : "memory in use", 0, top + 12, { bold: true });
  if (narrow) return;
  names.forEach((name, side) => {
    const words = painter.cut(`${name} ${side ? "outlined" : "solid"}`, layout.left - 6, SMALL);
    painter.text(words, 0, top + 26 + 13 * side, { ...SMALL, color: theme.muted });
  });
}

/** A line at each run's number of blocks; one for both if they are equal. */
function drawCapacities(
  painter: CanvasPainter,
  { models, layout, names }: Pick<GhostScene, "models" | "layout" | "names">,
  height: HeightOf,
) {
  const { muted: color } = painter.theme;
  const lines = models.map(({ settings }, side) => ({
    y: layout.memory.bottom - height(side, settings.num_blocks),
    whose: `${names[side]}: `,
    words: `${settings.num_blocks} blocks`,
  }));
  if (lines[0].y === lines[1].y) lines.splice(0, 2, { ...lines[0], whose: "" });
  lines.sort((one, other) => one.y - other.y);
  let last = -Infinity; // baseline of the words above
  const room = layout.width - layout.right - 6;
  for (const { y, whose, words } of lines) {
    painter.line(layout.left, y, layout.right, y, color, 1, [2, 2]);
    last = Math.max(y + 4, last + 13);
    const isSaid = whose.startsWith(words) || painter.measure(whose + words) > room;
    painter.text(painter.cut(isSaid ? words : whose + words, room), layout.right + 6, last, {
      color,
    });
  }
}

/** The used blocks by step; several steps on one pixel are one column with the largest value. */
function columnsOf({ measures, firstStep, stepCount }: Model, scale: Scale) {
  const columns: { step: number; left: number; right: number; value: number }[] = [];
  for (let i = 0; i < stepCount; i += 1) {
    const step = firstStep + i;
    const [left, right] = [scale.x(step), scale.end(step)];
    const before = columns.at(-1);
    if (before && right - before.left < 1) {
      before.right = right;
      before.value = Math.max(before.value, measures.used.at(i));
    } else columns.push({ step, left, right, value: measures.used.at(i) });
  }
  return columns;
}

/** A row's ground: the selection, the rule below it, the gap. */
function drawGround(
  painter: CanvasPainter,
  { layout, scales, rows, selected }: GhostScene,
  row: GhostRow,
  index: number,
) {
  const { theme } = painter;
  const top = layout.top + index * layout.pitch;
  const hue = painter.hue(spanOf(row).lane);
  if (index === selected) {
    painter.fill(0, top, layout.left - 4, layout.pitch - 1, theme.band);
    painter.fill(
      layout.right + 4,
      top,
      layout.width - layout.right - 4,
      layout.pitch - 1,
      theme.band,
    );
    painter.fill(0, top, 3, layout.pitch - 1, hue);
  }
  if (index < rows.length - 1) painter.fill(0, top + layout.pitch - 1, layout.width, 1, theme.rule);
  if (row.state !== "gap") return;
  const [from, to] = [Math.min(...row.ends), Math.max(...row.ends)].map(scales[0].at);
  const shade = shadesOf(theme)[row.gap < 0 ? "sooner" : "later"];
  painter.fill(from, top + 2, Math.max(1, to - from), layout.pitch - 5, shade);
}

/** The name at the left, the gap in words at the right. */
function drawWords(
  painter: CanvasPainter,
  { layout, rows, names, scales }: GhostScene,
  row: GhostRow,
  index: number,
) {
  const { theme } = painter;
  const span = spanOf(row);
  const y = layout.top + index * layout.pitch + layout.pitch / 2 + 2;
  painter.mark(6, y - 10, 11, 11, span.lane);
  painter.text(painter.cutName(span.name, layout.left - 26, { bold: true }), 20, y, { bold: true });
  const largest = Math.max(...rows.map(({ gap }) => Math.abs(gap) || 0));
  const bold = row.state === "gap" && Math.abs(row.gap) >= BOLD_FROM * largest;
  const words = gapWords(row, scales[0].kind, names);
  const style = bold ? { bold } : { color: theme.muted };
  painter.text(painter.cut(words, layout.width - layout.right - 8, style), layout.width - 4, y, {
    ...style,
    align: "right",
  });
}

/** The ends of both runs as lines, with their names. */
function drawEnds(painter: CanvasPainter, { layout, scales, ends, names }: GhostScene) {
  const { theme } = painter;
  const words = ends.map((end, side) => `${names[side]} ends ${placeWords(end, scales[0])}`);
  const y = layout.top - 7;
  const xs = ends.map((end) => scales[0].at(end));
  xs.forEach((x, side) => {
    const dash = side ? [3, 2] : [];
    painter.line(x, layout.top - 2, x, layout.bottom, theme.ink, 1, dash);
  });
  if (ends[0] === ends[1]) {
    painter.text(`both end ${placeWords(ends[0], scales[0])}`, xs[0] - 5, y, {
      bold: true,
      align: "right",
    });
    return;
  }
  const first = xs[0] < xs[1] ? 0 : 1;
  const whole = painter.measure(words[first], { bold: true }) < xs[first] - 5;
  painter.text(whole ? words[first] : placeWords(ends[first], scales[0]), xs[first] - 5, y, {
    bold: true,
    align: "right",
  });
  const later = 1 - first;
  const room = layout.width - xs[later] - 4;
  const fits = painter.measure(words[later], { bold: true }) <= room;
  const shown = fits ? words[later] : placeWords(ends[later], scales[0]);
  painter.text(shown, xs[later] + 4, y, { bold: true });
}

/**
 * Two slanted strokes where a run's time leaves something out: through the memory for A, whose lanes are solid, and
 * below the rows for B.
 */
function drawBreaks(painter: CanvasPainter, { layout, scales, breaks }: GhostScene) {
  const { theme } = painter;
  breaks.forEach((ofRun, side) => {
    const y = side ? layout.bottom : layout.memory.bottom;
    let free = -Infinity;
    for (const { place } of ofRun) {
      const x = scales[side].at(place);
      if (x < free) continue;
      painter.fill(x - 2, y - 6, 4, 12, theme.ground);
      for (const dx of [-2, 2]) painter.line(x + dx - 2, y + 6, x + dx + 2, y - 6, theme.ink, 1.2);
      free = x + BREAK;
    }
  });
}

const BREAK = 9; // px from one break to the next

/** "820 ms", or "at step 52". */
const placeWords = (place: number, { kind }: Scale) =>
  kind === "time" ? duration(place) : `at step ${place - 1}`;

/** A round glyph in ink at the fork, with words on both sides and a line through all rows. */
function drawFork(
  painter: CanvasPainter,
  { layout, models, narrow }: GhostScene,
  fork: number,
  x: number,
) {
  const { context, theme } = painter;
  painter.line(x, layout.head - 3, x, layout.bottom, theme.ink, 1.2);
  context.fillStyle = theme.ink;
  context.beginPath();
  context.arc(x, 12, 11, 0, 7);
  context.fill();
  for (const side of [-4.5, 4.5]) {
    painter.line(x, 18, x, 13, theme.ground, 1.8);
    painter.line(x, 13, x + side, 6, theme.ground, 1.8);
  }
  const alike = fork - models[0].firstStep;
  const before = `decided alike: ${alike} step${alike === 1 ? "" : "s"}`;
  if (alike && painter.measure(before) < x - 20)
    painter.text(before, x - 17, 16, { color: theme.muted, align: "right" });
  const after = narrow ? `step ${fork}: the fork` : `step ${fork}: the first decision that differs`;
  const style = { bold: true };
  const room = layout.width - x - 20;
  if (painter.measure(after, style) < room) painter.text(after, x + 17, 16, style);
}
