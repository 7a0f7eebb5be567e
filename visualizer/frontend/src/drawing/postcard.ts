/**
 * The postcard: one moment of a run as a picture to share, 1200 x 630 pixels. Its sentence without the step's number,
 * the lanes around the moment, all blocks. It can be read at half its size.
 *
 * It is drawn on 800 x 420 board pixels, at the scale of a projector, with the board's own lanes and blocks.
 */

import type { Frame } from "../model/frame.ts";
import { compose } from "../model/index.ts";
import { knowledgeWords, lacks, missing } from "../model/knowledge.ts";
import type { Model } from "../model/model.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import type { Span } from "../model/words.ts";
import { type CellGrid, grid } from "./block_grid.ts";
import { claimOf, drawBlocks } from "./blocks.ts";
import type { CanvasPainter } from "./canvas_painter.ts";
import { drawLife } from "./lane.ts";
import type { Stay } from "./lane_packing.ts";
import { drawMemoryArea, drawMiniMap } from "./mini_map.ts";
import { breakLines, drawLines, type Line } from "./text_lines.ts";
import { type Scale, stepAxis, timeScale } from "./time_axis.ts";
import { drawWaits } from "./wait_line.ts";

type Steps = { first: number; last: number };

export interface Card {
  model: Model;
  step: number;
  selected: number | null;
  title?: string; // of the log
  link?: string | null;
  steps?: Steps; // keeps the lanes in place from card to card
  requests?: number[]; // ids; the same
}

type CardScene = Card & { frame: Frame; laneOf: (request: number | null) => number | null };

export const POSTCARD = { width: 800, height: 420, scale: 1.5 };

const EDGE = 32;
const SIZES = [
  [20.7, 28],
  [18, 24],
  [15.5, 20],
];
const SENTENCE = { top: 47, height: 60 };
const MEMORY = { top: 104, bottom: 128 };
const LANES = { top: 136, pitch: 22, most: 8, left: 93, right: 489 };
const STEPS = 28;
const FEWEST_STEPS = 12; // of a short log: its steps are not wider than that
const BEFORE = 17; // of those, before the moment
const MAP = {
  left: 521,
  right: 768,
  top: 136,
  bottom: 352,
  columns: [8, 12, 16, 24, 32, 48, 64, 96, 128],
};
const FOOT = 377;

/** Draws the postcard. The painter has begun with the size of `POSTCARD`. */
export function drawPostcard(painter: CanvasPainter, card: Card) {
  const { model, step } = card;
  const frame = model.frame(step);
  painter.fill(0, 0, POSTCARD.width, POSTCARD.height, painter.theme.ground);
  const scene: CardScene = { ...card, frame, laneOf: (id) => model.laneOf(id, step) };
  drawSentence(painter, scene);
  drawLanes(painter, scene);
  drawMap(painter, scene);
  drawFoot(painter, scene);
}

/** The clauses of a step's sentence; of a step without any, what was computed. */
export function momentWords(frame: Frame): Span[] {
  const { kinds, spans } = compose(frame);
  const clauses = spans.findIndex(({ bold, request }) => !bold && request == null);
  const lead = kinds.length && clauses >= 0 ? clauses : 0;
  const words = spans.slice(lead).map((span) => ({ ...span }));
  if (words[0]) words[0].text = words[0].text.replace(/^\s+/, "").replace(/^Step \d+: /, "");
  return words.filter(({ text }) => text);
}

/** The sentence in plain text, for the picture's description. */
export const postcardTitle = ({ model, step }: Pick<Card, "model" | "step">) =>
  `Step ${step}: ${momentWords(model.frame(step))
    .map(({ text }) => text)
    .join("")}`;

function drawSentence(painter: CanvasPainter, { frame, laneOf, selected }: CardScene) {
  const spans = momentWords(frame);
  const width = POSTCARD.width - 2 * EDGE;
  let [size, line] = SIZES[0];
  let lines: Line[] = [];
  for ([size, line] of SIZES) {
    lines = breakLines(painter, spans, { width, size });
    if (lines.length * line <= SENTENCE.height) break;
  }
  const shown = lines.slice(0, Math.floor(SENTENCE.height / line));
  drawLines(painter, shown, { x: EDGE, y: SENTENCE.top, size, line, laneOf, selected });
}

/** The steps on the card: those around the moment. */
export function stepsAround(
  { firstStep, lastStep }: Pick<Model, "firstStep" | "lastStep">,
  step: number,
): Steps {
  const last = Math.min(lastStep, Math.max(step - BEFORE, firstStep) + STEPS - 1);
  return { first: Math.max(firstStep, last - STEPS + 1), last };
}

/**
 * The requests on the card: those that the moment is about, then running, preempted and waiting ones, then others that
 * lived in `steps`. They are in the order of their lanes; `left` counts the live ones that do not fit.
 */
export function requestsOn(
  { frame, model, selected }: Pick<CardScene, "frame" | "model" | "selected">,
  steps: Steps,
  most: number = LANES.most,
): { shown: number[]; left: number } {
  const { running, waiting, story } = frame;
  const about = story.preemptions.flatMap(({ request, by }) => [request, by]);
  const preempted = waiting.filter((id) => model.requestSpan(id).admissions.length);
  const all = [...about, selected, ...running, ...preempted, ...waiting];
  const live = [...new Set(all)].filter((id) => model.request(id)) as number[];
  const near = model.requests
    .filter(
      ({ arrived, finished }) =>
        Number(arrived) <= frame.step && Number(finished?.step) >= steps.first,
    )
    .map(({ id }) => id);
  const known = [...new Set([...live, ...near])];
  const lane = (id: number) => model.laneOf(id, frame.step) ?? Infinity;
  return {
    shown: known.slice(0, most).sort((a, b) => lane(a) - lane(b) || a - b),
    left: Math.max(0, live.length - most),
  };
}

/**
 * What stays in place on the cards of several steps: the steps and requests on them. Nothing does if there are too
 * many.
 */
export function inPlace(
  model: Model,
  [first, last]: [first: number, last: number],
): Pick<Card, "steps" | "requests"> {
  const live = model.requests.filter(
    ({ arrived, finished }) => Number(arrived) <= last && (finished?.step ?? last) >= first,
  );
  const lane = ({ lane: own }: RequestSpan) => own ?? Infinity;
  const sorted = live.toSorted((a, b) => lane(a) - lane(b) || a.id - b.id);
  return {
    steps: last - first < STEPS ? stepsAround(model, Math.min(first + BEFORE, last)) : undefined,
    requests: live.length <= LANES.most ? sorted.map(({ id }) => id) : undefined,
  };
}

function drawLanes(painter: CanvasPainter, scene: CardScene) {
  const { model, step, frame, laneOf, selected } = scene;
  const { theme } = painter;
  const steps = scene.steps ?? stepsAround(model, step);
  const axis = stepAxis(steps);
  const scale = timeScale(
    { from: steps.first, to: Math.max(steps.last + 1, steps.first + FEWEST_STEPS) },
    LANES.left,
    LANES.right,
    axis,
  );
  const { shown, left } = scene.requests
    ? { shown: scene.requests, left: 0 }
    : requestsOn(scene, steps);
  const bottom = LANES.top + shown.length * LANES.pitch;
  const [x, end] = [scale.x(step), scale.end(step)];
  const rowOf: Map<number | null, number> = new Map(shown.map((id, row) => [id, row]));
  const chosen = rowOf.get(selected);
  if (chosen !== undefined) {
    const top = LANES.top + chosen * LANES.pitch + 1;
    painter.fill(EDGE - 9, top, LANES.right - EDGE + 14, LANES.pitch, theme.band);
    painter.fill(EDGE - 9, top, 3, LANES.pitch, painter.hue(laneOf(selected)));
  }
  painter.faded(0.07, () =>
    painter.fill(x, MEMORY.top - 2, end - x, bottom - MEMORY.top + 6, theme.ink),
  );
  drawMemory(painter, scene, scale);
  const packing = { lanes: shown.map((id, row) => [stayOf(model.requestSpan(id), row, model)]) };
  const lanes = {
    ...scene,
    scale,
    packing,
    laneHeight: LANES.pitch,
    end: LANES.right,
    narrow: true,
    step: Infinity,
  };
  const height = bottom - LANES.top + 2;
  if (!shown.length) drawMissing(painter, missing(model, "arrivals"), EDGE, LANES.right);
  painter.clipped(LANES.left - 1, LANES.top - 2, LANES.right - LANES.left + 4, height, () =>
    packing.lanes.forEach(([stay], row) => {
      drawWaits(painter, scale, model.requests[stay.index], baseOf(row), model.lastStep);
      drawLife(painter, lanes, stay, baseOf(row));
    }),
  );
  shown.forEach((id, row) => {
    const base = baseOf(row);
    painter.mark(EDGE, base - 10, 10, 10, laneOf(id));
    const name = painter.cutName(model.requestSpan(id).name, LANES.left - EDGE - 20, {
      size: 12,
      bold: true,
    });
    painter.text(name, EDGE + 15, base, { size: 12, bold: true });
  });
  if (left) painter.text(`and ${left} more`, EDGE + 15, bottom + 15, { color: theme.muted });
  for (const edge of [x, end]) painter.line(edge, MEMORY.top - 4, edge, bottom + 4, theme.ink);
  const middle = (x + end) / 2;
  for (const { request, by } of frame.story.preemptions)
    drawHandover(painter, rowOf, request, by, middle);
  const flag = `step ${step}`;
  const half = painter.measure(flag, { bold: true }) / 2 + 6;
  painter.fill(middle - half, MEMORY.top - 14, 2 * half, 14, theme.ink);
  painter.text(flag, middle, MEMORY.top - 3, { bold: true, align: "center", color: theme.ground });
}

const baseOf = (row: number) => LANES.top + (row + 1) * LANES.pitch - 4;

function stayOf(
  { index, forked, arrived, finished }: RequestSpan,
  lane: number,
  { firstStep, lastStep }: Pick<Model, "firstStep" | "lastStep">,
): Stay {
  const from = forked?.step ?? arrived ?? firstStep;
  return { index, lane, from, to: Math.max(from, finished?.step ?? lastStep) };
}

function drawHandover(
  painter: CanvasPainter,
  rowOf: Map<number | null, number>,
  from: number,
  to: number,
  x: number,
) {
  const [start, end] = [rowOf.get(from), rowOf.get(to)];
  if (start === undefined || end === undefined || start === end) return;
  const [begin, tip] =
    end < start ? [baseOf(start) - 12, baseOf(end) + 3] : [baseOf(start), baseOf(end) - 16];
  painter.arrow(x, begin, tip, painter.theme.ink);
}

/** Used blocks as an area, cached ones hatched above it, and a line at the capacity. */
function drawMemory(painter: CanvasPainter, { model }: CardScene, scale: Scale) {
  const { theme } = painter;
  drawMemoryArea(painter, model, scale, MEMORY.bottom, MEMORY.bottom - MEMORY.top);
  painter.line(LANES.left, MEMORY.top, LANES.right, MEMORY.top, theme.muted, 1, [2, 2]);
  painter.text("memory", EDGE, MEMORY.top + 10, { size: 11, bold: true });
  const isKnown = !lacks(model, "block_tables") || !lacks(model, "prefix_tree");
  const blocks = lacks(model, "settings") ? "" : `${model.settings.num_blocks} blocks`;
  const size = isKnown ? blocks : knowledgeWords.unknown;
  painter.text(size, EDGE, MEMORY.top + 23, { color: theme.muted });
}

/** The grid of `count` blocks: as few columns as let all rows fit. */
export function postcardGrid(count: number): CellGrid {
  const { left, right, top, bottom, columns: choices } = MAP;
  const sizes = choices.map((columns) => {
    const gap = columns <= 16 ? 4 : columns <= 32 ? 2 : 1;
    const cell = (right - left + gap) / columns - gap;
    return { columns, gap, cell, rows: Math.ceil(count / columns) };
  });
  const fits = ({ rows, gap, cell }: (typeof sizes)[number]) => rows * (cell + gap) <= bottom - top;
  const { columns, gap, cell, rows } = sizes.find(fits) ?? sizes[sizes.length - 1];
  const gapY = columns === choices[0] ? 2 * gap : gap;
  const every = Math.min(1.15 * cell + gapY, (bottom - top + gapY) / rows);
  return grid(count, right, top, { label: 0, body: every - gapY, gapX: gap, gapY, columns, left });
}

function drawMap(painter: CanvasPainter, scene: CardScene) {
  const { model, frame, selected, laneOf } = scene;
  const { theme } = painter;
  const claim = claimOf(frame, model, selected);
  painter.text("KV blocks", MAP.left, MAP.top - 13, { size: 11, bold: true });
  const unknown = missing(model, "block_tables");
  if (unknown) return drawMissing(painter, unknown, MAP.left, MAP.right);
  const cells = postcardGrid(frame.blocks.length);
  const name = model.request(selected)?.name;
  const about = claim.lost.size
    ? `dashed: ${name}'s ${claim.lost.size} until this step`
    : claim.held.size && `ringed: ${name}'s ${claim.held.size}`;
  if (about) {
    const at = MAP.left + painter.measure("KV blocks", { bold: true }) + 6;
    const words = painter.cut(about, MAP.right - at, { size: 10.5 });
    painter.text(words, at, MAP.top - 13, { size: 10.5, color: theme.muted });
  }
  if (cells.body >= 7)
    drawBlocks(painter, { model, frame, grid: cells, claim, selected, untouched: true });
  else drawMiniMap(painter, frame.blocks, cells, laneOf);
}

/** What the log does not know, in place of a picture. */
function drawMissing(painter: CanvasPainter, words: string, left: number, right: number) {
  const form = { size: 12, line: 17 };
  const lines = breakLines(painter, [{ text: words }], { width: right - left, size: form.size });
  const place = { x: left, y: MAP.top + 12, laneOf: () => null, selected: null };
  drawLines(painter, lines, { ...place, ...form });
}

function drawFoot(painter: CanvasPainter, { model, step, title, link }: CardScene) {
  const { theme } = painter;
  const size = 11.5;
  painter.line(EDGE, FOOT, POSTCARD.width - EDGE, FOOT, theme.rule);
  painter.text("Underglass", EDGE, FOOT + 20, { size, bold: true });
  const at = EDGE + painter.measure("Underglass", { size, bold: true }) + 10;
  const { engine } = model.source;
  const where = [title, engine].map((one) => (one ? `${one}, ` : "")).join("");
  const about = `${where}step ${step} of ${model.lastStep}`;
  painter.text(about, at, FOOT + 20, { size, color: theme.muted });
  if (!link) return;
  const room = POSTCARD.width - EDGE - at - painter.measure(about, { size }) - 20;
  painter.text(painter.cut(link, room, { size }), POSTCARD.width - EDGE, FOOT + 20, {
    size,
    color: theme.muted,
    align: "right",
  });
}
