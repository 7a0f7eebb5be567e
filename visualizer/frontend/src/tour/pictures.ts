/**
 * The pictures of a tour. Each draws one panel of a scene into a width and returns its height; what the scene does not
 * name is grey and stays in its place.
 */

import { usedGrid } from "../drawing/block_grid.ts";
import { claimOf, drawBlocks } from "../drawing/blocks.ts";
import type { CanvasPainter } from "../drawing/canvas_painter.ts";
import { fillCause } from "../drawing/causes.ts";
import { drawLife } from "../drawing/lane.ts";
import type { Stay } from "../drawing/lane_packing.ts";
import { drawMemoryArea } from "../drawing/mini_map.ts";
import type { Theme } from "../drawing/palette.ts";
import { requestsOn, stepsAround } from "../drawing/postcard.ts";
import { breakLines, drawLines } from "../drawing/text_lines.ts";
import { axisTicks, type Scale, stepAxis, timeScale, wholeView } from "../drawing/time_axis.ts";
import { drawWaits } from "../drawing/wait_line.ts";
import { drawBar, partsOf } from "../drawing/waterfall_bar.ts";
import type { Model } from "../model/model.ts";
import { causeName, timeWords } from "../model/waterfall_words.ts";
import type { LitPainter } from "./lit_painter.ts";
import type { PanelKind, Scene, TourHost } from "./scenes.ts";

/** where a picture is drawn: in `width` board pixels below `top` */
export interface Place {
  painter: LitPainter;
  host: TourHost;
  scene: Scene;
  width: number;
  height: number; // for pictures that fit themselves to it
  small: boolean;
}

const FLAG = 16;
const MOST_LANES = 8;
const MARGIN = 4; // steps beside a bracket
const MOST_STEPS = 400;
const TALLEST = 340; // px of a map
const ZOOMS = [2, 1.6, 1.3, 1, 0.75, 0.5];

type Draw = (place: Place, model: Model) => void;

/** Draws a panel of a scene. */
export function drawPanel(kind: PanelKind, place: Place) {
  const { host, scene } = place;
  const model = host.modelOf(scene, scene.run);
  if (kind === "bars") return drawBars(place);
  if (kind === "both") return drawBoth(place);
  if (model) DRAWS[kind]?.(place, model);
}

/** The height that a panel needs in `width`; the others fill the height they are given. */
export function heightOf(
  kind: PanelKind,
  { scene, host, small }: Omit<Place, "painter">,
  width: number,
) {
  const model = host.modelOf(scene, scene.run);
  if (kind === "blocks" && model) {
    const zoom = zoomOf(model, width, small);
    return Math.min(TALLEST, zoom * (usedGrid(model, width / zoom - 4).height + 8));
  }
  if (kind === "bars") return scene.bars.length * BAR_PITCH;
  if (kind === "time") return small ? 54 : 240;
  if (kind === "lanes") return small ? 150 : 0;
  return 0;
}

// Lanes

/** The steps of a scene: those around it, and those that its brackets cover. */
function stepsOf({ step, brackets }: Scene, model: Model) {
  const { first, last } = stepsAround(model, step ?? model.firstStep);
  const from = brackets.map((one) => one[1] - MARGIN);
  const to = brackets.map((one) => one[2] + MARGIN);
  const end = Math.min(Math.max(last, ...to), model.lastStep);
  return {
    first: Math.max(Math.min(first, ...from), model.firstStep, end - MOST_STEPS),
    last: end,
  };
}

/** The requests on a scene's lanes: those that are lit, and others that lived then, in the order of their lanes. */
function lanesOf(
  scene: Scene,
  lit: number[],
  model: Model,
  steps: { first: number; last: number },
  most: number,
) {
  const step = scene.step ?? model.firstStep;
  const frame = model.frame(step);
  const { shown } = requestsOn({ frame, model, selected: lit[0] ?? null }, steps, most);
  const known = lit.filter((id) => model.request(id));
  const all = [...new Set([...known, ...shown])].slice(0, most);
  const lane = (id: number) => model.laneOf(id, step) ?? Infinity;
  return all.sort((a, b) => lane(a) - lane(b) || a - b);
}

const drawLanes: Draw = (place, model) =>
  lanes(place, model, place.scene.requests, 0, place.height);

/** The same requests in both runs, one above the other. */
function drawBoth(place: Place) {
  const { painter, host, scene, height } = place;
  const half = height / 2;
  [scene.requests, scene.twins].forEach((lit, run) => {
    const model = host.modelOf(scene, run);
    if (model && scene.step !== null && scene.step <= model.lastStep)
      lanes(place, model, lit, run * half, half - 12);
    painter.text(host.runs?.[run] ?? "", 0, run * half + 12, { bold: true });
  });
}

function lanes(
  { painter, scene, width, small }: Place,
  model: Model,
  lit: number[],
  top: number,
  height: number,
) {
  const { theme } = painter;
  const step = scene.step ?? model.firstStep;
  const steps = stepsOf(scene, model);
  const room = height - FLAG - 22;
  const most = Math.max(2, Math.min(MOST_LANES, Math.floor(room / (small ? 20 : 34))));
  const shown = lanesOf(scene, lit, model, steps, most);
  const pitch = Math.min(small ? 24 : 64, room / Math.max(1, shown.length));
  const left = small ? 62 : 104;
  const view = { from: steps.first, to: Math.max(steps.last + 1, steps.first + 12) };
  const scale = timeScale(view, left, width - 6, stepAxis(steps));
  const head = top + FLAG;
  const bottom = head + shown.length * pitch;
  drawCursor(painter, scale, step, head, bottom, steps.last);
  const packing = { lanes: shown.map((id, lane) => [stayOf(id, lane, model)]) };
  const drawn = { model, scale, packing, laneHeight: 22, end: width, narrow: true };
  const baseOf = (row: number) => head + (row + 1) * pitch - (small ? 4 : pitch / 3);
  shown.forEach((id, row) => {
    const isLit = lit.includes(id);
    painter.lit = isLit ? null : new Set();
    painter.faded(isLit ? 1 : 0.75, () =>
      painter.clipped(left - 1, head - 2, width - left, bottom - head + 4, () => {
        drawWaits(
          painter,
          scale,
          model.requests[packing.lanes[row][0].index],
          baseOf(row),
          model.lastStep,
        );
        drawLife(painter, drawn, packing.lanes[row][0], baseOf(row));
      }),
    );
    const { name } = model.requestSpan(id);
    const font = { size: small ? 11 : 13, bold: isLit };
    painter.mark(0, baseOf(row) - 10, 10, 10, model.laneOf(id, step));
    painter.text(painter.cutName(name, left - 24, font), 15, baseOf(row), {
      ...font,
      color: isLit ? theme.ink : theme.faint,
    });
  });
  painter.lit = null;
  let free = 0; // where the words of the bracket before end
  for (const [request, first, last, words] of small ? [] : scene.brackets) {
    const row = shown.indexOf(request);
    if (row < 0) continue;
    const base = baseOf(row) - 18;
    free = drawBracket(painter, scale, [first, last], words, base, width, free);
  }
  for (const { request, by } of model.frame(step).story.preemptions) {
    const [from, to] = [shown.indexOf(request), shown.indexOf(by)];
    const isTold = lit.includes(request) && lit.includes(by) && from !== to && from >= 0 && to >= 0;
    if (!isTold) continue;
    const [begin, tip] =
      to < from ? [baseOf(from) - 12, baseOf(to) + 3] : [baseOf(from) + 2, baseOf(to) - 15];
    painter.arrow(scale.middle(step), begin, tip, theme.ink);
  }
  for (const tick of axisTicks(scale, 60))
    painter.text(`${tick}`, scale.middle(tick), bottom + 16, {
      color: theme.muted,
      align: "center",
    });
  painter.text("step", 0, bottom + 16, { color: theme.muted });
}

function stayOf(id: number, lane: number, model: Model): Stay {
  const { index, forked, arrived, finished } = model.requestSpan(id);
  const from = forked?.step ?? arrived ?? model.firstStep;
  return { index, lane, from, to: Math.max(from, finished?.step ?? model.lastStep) };
}

/** The step of the scene: a pale band with its number above it. */
function drawCursor(
  painter: CanvasPainter,
  scale: Scale,
  step: number,
  top: number,
  bottom: number,
  last: number,
) {
  const { theme } = painter;
  const [x, end] = [scale.x(step), Math.max(scale.end(step), scale.x(step) + 2)];
  if (step > last) return;
  painter.faded(0.07, () => painter.fill(x, top - 2, end - x, bottom - top + 4, theme.ink));
  for (const edge of [x, end]) painter.line(edge, top - 2, edge, bottom + 2, theme.ink);
  const flag = `step ${step}`;
  const half = painter.measure(flag, { bold: true }) / 2 + 6;
  const middle = Math.min(Math.max((x + end) / 2, scale.left + half), scale.right - half);
  painter.fill(middle - half, top - FLAG, 2 * half, 14, theme.ink);
  painter.text(flag, middle, top - FLAG + 11, { bold: true, align: "center", color: theme.ground });
}

/** Words over the steps of a lane, with a bracket below them; a line higher if there are words before `free`. */
function drawBracket(
  painter: CanvasPainter,
  scale: Scale,
  [first, last]: [first: number, last: number],
  words: string,
  y: number,
  width: number,
  free: number,
) {
  const { lost, ground } = painter.theme;
  const [x, end] = [Math.max(scale.left, scale.x(first)), Math.min(scale.right, scale.end(last))];
  painter.line(x, y, end, y, lost, 1.5);
  for (const edge of [x, end]) painter.line(edge, y, edge, y + 5, lost, 1.5);
  const font = { size: 13, bold: true };
  const half = painter.measure(words, font) / 2;
  const isWide = 2 * half < end - x;
  const middle = isWide ? (x + end) / 2 : Math.min(x + half, width - half - 2);
  const above = middle - half < free ? 15 : 0;
  painter.text(words, middle, y - 5 - above, { ...font, align: "center", halo: ground });
  return middle + half + 6;
}

// The whole run

/** Memory, requests that run and requests that wait, over all steps; the steps that the scene is about are lit. */
const drawRun: Draw = ({ painter, scene, width, height }, model) => {
  const { theme } = painter;
  const axis = stepAxis({ first: model.firstStep, last: model.lastStep });
  const left = 104;
  const scale = timeScale(wholeView(axis), left, width - 6, axis);
  const rows = ["used", "running", "waiting"] as const;
  const names = { used: "KV blocks", running: "running", waiting: "waiting" };
  const row = Math.min(110, (height - 26) / rows.length);
  if (scene.window) {
    const [first, last] = scene.window;
    painter.fill(
      scale.x(first),
      0,
      scale.end(last) - scale.x(first),
      rows.length * row,
      theme.band,
    );
    for (const edge of [scale.x(first), scale.end(last)])
      painter.line(edge, 0, edge, rows.length * row, theme.ink, 1, [3, 3]);
  }
  rows.forEach((name, index) => {
    const bottom = (index + 1) * row - 8;
    const room = row - 22;
    const counts = [...model.measures[name]];
    const most = name === "used" ? model.settings.num_blocks : Math.max(1, ...counts);
    painter.text(names[name], 0, bottom - room + 12, { size: 13, bold: name === "waiting" });
    painter.text(`at most ${Math.max(0, ...counts)}`, 0, bottom - room + 28, {
      color: theme.muted,
    });
    painter.line(left, bottom, width - 6, bottom, theme.rule);
    if (name === "used") drawMemoryArea(painter, model, scale, bottom, room);
    else
      counts.forEach((count, i) => {
        const high = (room * count) / most;
        const wide = scale.width + (scale.width < 4 ? 0.5 : -0.5); // slits between narrow steps would be a moiré
        const color = name === "waiting" ? theme.ink : theme.faint;
        painter.fill(scale.x(model.firstStep + i), bottom - high, wide, high, color);
      });
  });
  for (const tick of axisTicks(scale, 60))
    painter.text(`${tick}`, scale.middle(tick), rows.length * row + 12, {
      color: theme.muted,
      align: "center",
    });
  painter.text("step", 0, rows.length * row + 12, { color: theme.muted });
};

// Memory and time

/** The blocks after the step; the scene's own have rings. */
const drawMap: Draw = ({ painter, scene, width, height, small }, model) => {
  const { step, requests, blocks } = scene;
  const at = step ?? model.firstStep;
  const frame = model.frame(at);
  const selected = requests[0] ?? null;
  const claim = claimOf(frame, model, blocks.length ? selected : null);
  const lost = [...claim.lost].filter((block) => blocks.includes(block));
  claim.lost = new Set(lost);
  claim.held = new Set(blocks.filter((block) => !claim.lost.has(block)));
  painter.lit = new Set(requests.map((id) => model.laneOf(id, at)));
  const zoom = zoomOf(model, width, small, height);
  const { context } = painter;
  context.save();
  context.scale(zoom, zoom);
  context.translate(2, 0);
  const grid = usedGrid(model, width / zoom - 4, 4);
  drawBlocks(painter, { model, frame, grid, claim, selected, untouched: true });
  context.restore();
  painter.font = null; // restoring has reset it
  painter.lit = null;
};

/** How much larger the blocks of a large picture are drawn, so that they fill its height. */
function zoomOf(model: Model, width: number, small: boolean, height = TALLEST) {
  const fits = (zoom: number) => zoom * (usedGrid(model, width / zoom - 4).height + 8) <= height;
  return small ? 1 : (ZOOMS.find(fits) ?? ZOOMS[ZOOMS.length - 1]);
}

/** Where the time of the scene's first request went: its bar, and the largest parts of it. */
const drawTime: Draw = ({ painter, scene, width, height, small }, model) => {
  const { waterfall } = model;
  const [id] = scene.requests;
  if (!model.request(id)) return;
  const { spans, total, byCause } = waterfall.of(id);
  const start = spans[0]?.start ?? 0;
  const parts = partsOf(spans, (at) => ((width - 2) * (at - start)) / Math.max(1, total));
  const { context, theme } = painter;
  const base = 28;
  const tall = small ? 1 : TALL;
  context.scale(1, tall);
  drawBar(painter, parts, base);
  context.scale(1, 1 / tall);
  const bottom = base * tall;
  painter.line(0, bottom + 0.5, width, bottom + 0.5, theme.rule);
  const largest = Object.entries(byCause).sort((a, b) => b[1] - a[1]);
  const columns = small || width > 500 ? 2 : 1;
  const rows = small ? 1 : Math.max(1, Math.floor((height - bottom - 16) / 26));
  largest.slice(0, columns * rows).forEach(([cause, time], index) => {
    const x = (index % columns) * (width / columns);
    const y = bottom + (small ? 18 : 34 + 26 * Math.floor(index / columns));
    fillCause(painter, cause, [x, y - 10, 12, 10]);
    const words = `${timeWords(time, waterfall.unit)} ${causeName(cause)}`;
    const font = { size: small ? 11 : 14, bold: !index };
    painter.text(painter.cut(words, width / columns - 22, font), x + 18, y, font);
  });
};

// Bars

const TALL = 3; // how much higher a large bar is
const BAR_PITCH = 46;

/** A bar for each row of the scene. */
function drawBars({ painter, scene, width }: Place) {
  const { theme } = painter;
  const most = Math.max(1, ...scene.bars.map(([, value]) => value));
  scene.bars.forEach(([name, value, words, isLit], row) => {
    const y = row * BAR_PITCH;
    const font = { size: 13, bold: isLit };
    const color = isLit ? theme.ink : theme.muted;
    painter.text(painter.cutName(name, width / 2, font), 0, y + 14, { ...font, color });
    painter.text(words, width, y + 14, { ...font, color, align: "right" });
    painter.fill(0, y + 20, width, 12, theme.band);
    painter.fill(0, y + 20, (width * value) / most, 12, isLit ? theme.ink : theme.rule);
  });
}

const DRAWS: Partial<Record<PanelKind, Draw>> = {
  run: drawRun,
  lanes: drawLanes,
  blocks: drawMap,
  time: drawTime,
};

/** A scene as one picture: title, sentences and large panel, for a GIF and for the printed page. */
export function drawScene(
  painter: LitPainter,
  host: TourHost,
  scene: Scene,
  spans: Parameters<typeof breakLines>[1],
  laneOf: (request: number) => number | null,
  [width, height, size]: [width: number, height: number, size: number],
  theme: Theme,
) {
  painter.begin(width, height, 1, theme);
  painter.fill(0, 0, width, height, theme.ground);
  const edge = 2 * size;
  const form = { width: width - 2 * edge, size };
  const lines = breakLines(painter, spans, form);
  painter.text(scene.title, edge, edge, { size: 0.65 * size, color: theme.muted });
  const line = 1.35 * size;
  drawLines(painter, lines, { x: edge, y: edge + 1.5 * size, size, line, laneOf, selected: null });
  const top = edge + size + lines.length * line + 0.4 * size;
  const { context } = painter;
  context.save();
  context.translate(edge, top);
  drawPanel(scene.panel, {
    painter,
    host,
    scene,
    width: width - 2 * edge,
    height: height - top - edge / 2,
    small: false,
  });
  context.restore();
}
