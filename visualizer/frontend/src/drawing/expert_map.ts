/**
 * Two maps of layers and experts beside each other, or one above the other if narrow: the tokens of each expert in a
 * step, and so far. The darker a cell, the more tokens; an idle expert has none but an outline. The bar at the end of a
 * row is its imbalance: how many times the mean its busiest expert has.
 */

import { busiest, type Loads, most, timesMean } from "../model/expert_loads.ts";
import type { CanvasPainter } from "./canvas_painter.ts";
import { plural } from "./html.ts";

export interface ExpertGrid {
  layers: number[]; // those with experts, from the top
  experts: number;
  pitch: number; // height of a row
  cell: number; // width of a cell
  maps: { x: number; y: number }[]; // the upper left corner of each map's cells
  width: number;
  height: number;
}

export type Place = { layer: number; expert: number };

const GAP = 36; // px between two maps, as between the board's columns
const LEFT = 26;
const TOP = 20;
const BELOW = 16;
const BAR = { gap: 8, width: 44, words: 33 };
const SIDE_BY_SIDE = 640;
const TALLEST = 240;
const ROW = { least: 4, most: 18 };
const FAINTEST = 0.12; // of a single token beside thousands
const SMALL = { size: 10.5 };

/** @param layers of the whole run so far */
export function expertGrid(layers: Loads, width: number): ExpertGrid {
  const sparse = layers.flatMap((loads, layer) => (loads.length ? layer : []));
  const experts = Math.max(1, ...layers.map(({ length }) => length));
  const beside = width >= SIDE_BY_SIDE;
  const each = beside ? (width - GAP) / 2 : width;
  const fits = Math.floor(TALLEST / Math.max(1, sparse.length));
  const pitch = Math.min(ROW.most, Math.max(ROW.least, fits));
  const rows = sparse.length * pitch;
  const cell = (each - LEFT - BAR.gap - BAR.width - BAR.words) / experts;
  const second = beside ? { x: each + GAP + LEFT, y: TOP } : { x: LEFT, y: 2 * TOP + rows + BELOW };
  return {
    layers: sparse,
    experts,
    pitch,
    cell,
    maps: [{ x: LEFT, y: TOP }, second],
    width,
    height: second.y + rows + BELOW,
  };
}

/** The cell at a point of either map, or null. */
export function cellAt(
  { maps, layers, experts, cell, pitch }: ExpertGrid,
  x: number,
  y: number,
): Place | null {
  for (const map of maps) {
    const expert = Math.floor((x - map.x) / cell);
    const layer = layers[Math.floor((y - map.y) / pitch)];
    if (layer !== undefined && expert >= 0 && expert < experts) return { layer, expert };
  }
  return null;
}

/**
 * @param maps null: no expert computed anything
 * @param at the highlighted cell
 */
export function drawExperts(
  painter: CanvasPainter,
  grid: ExpertGrid,
  maps: { title: string; loads: Loads | null }[],
  at: Place | null,
) {
  maps.forEach(({ title, loads }, index) => {
    const { x, y } = grid.maps[index];
    painter.text(title, x, y - 7, { bold: true });
    drawAxes(painter, grid, x, y);
    if (loads) {
      const key = `strongest: ${plural(busiest(loads).tokens, "token")}; layers down, experts across`;
      const begin = x + painter.measure(title, { bold: true }) + 10;
      const room = x + grid.experts * grid.cell - begin;
      painter.text(painter.cut(key, room, SMALL), begin, y - 7, {
        ...SMALL,
        color: painter.theme.muted,
      });
      drawLoads(painter, grid, loads, x, y);
    }
    if (at) ring(painter, grid, at, x, y, 2);
  });
}

function drawAxes(
  painter: CanvasPainter,
  { layers, experts, cell, pitch }: ExpertGrid,
  x: number,
  y: number,
) {
  const { muted } = painter.theme;
  const every = Math.ceil(12 / pitch);
  layers.forEach((layer, row) => {
    const base = y + row * pitch + pitch / 2 + 3.5;
    if (row % every === 0)
      painter.text(`${layer}`, x - 6, base, { ...SMALL, color: muted, align: "right" });
  });
  const step = [1, 2, 4, 8, 16, 32, 64, 128, 256].find((n) => n * cell >= 26) ?? experts;
  const base = y + layers.length * pitch + 12;
  for (let expert = 0; expert < experts; expert += step)
    painter.text(`${expert}`, x + (expert + 0.5) * cell, base, {
      ...SMALL,
      color: muted,
      align: "center",
    });
}

function drawLoads(painter: CanvasPainter, grid: ExpertGrid, loads: Loads, x: number, y: number) {
  const { layers, cell, pitch, experts } = grid;
  const { ink, rule, muted } = painter.theme;
  const gap = Math.min(cell, pitch) >= 6 ? 1 : 0;
  const top = Math.max(...loads.map(most));
  const times = layers.map((layer) => timesMean(loads[layer], most(loads[layer])));
  const longest = Math.max(...times.map(Number));
  const right = x + experts * cell + BAR.gap;
  const end = right + BAR.width + BAR.words;
  painter.text("most ÷ mean", end, y - 7, { ...SMALL, color: muted, align: "right" });
  if (gap)
    layers.forEach((layer, row) => {
      loads[layer].forEach((load, expert) => {
        if (!load) painter.frame(x + expert * cell, y + row * pitch, cell - gap, pitch - gap, rule);
      });
    });
  // Thousands of cells: only what differs between them is set for each.
  const { context } = painter;
  context.fillStyle = ink;
  layers.forEach((layer, row) => {
    loads[layer].forEach((load, expert) => {
      if (!load) return;
      context.globalAlpha = FAINTEST + (1 - FAINTEST) * (load / top);
      context.fillRect(x + expert * cell, y + row * pitch, cell - gap, pitch - gap);
    });
  });
  context.globalAlpha = 1;
  layers.forEach((_, row) => {
    const down = y + row * pitch;
    const height = Math.max(2, Math.min(8, pitch - 2));
    painter.fill(
      right,
      down + (pitch - height) / 2,
      (BAR.width * Number(times[row])) / longest,
      height,
      muted,
    );
    if (pitch >= 10 || Number(times[row]) === longest)
      painter.text(`${times[row]}×`, end, down + pitch / 2 + 3.5, {
        ...SMALL,
        align: "right",
      });
  });
  ring(painter, grid, busiest(loads), x, y, 1);
}

/** A frame around a cell, set off from it. */
function ring(
  painter: CanvasPainter,
  { layers, cell, pitch }: ExpertGrid,
  { layer, expert }: Place,
  x: number,
  y: number,
  line: number,
) {
  const out = 1 + line;
  const left = x + expert * cell - out;
  const top = y + layers.indexOf(layer) * pitch - out;
  const { ground, ink } = painter.theme;
  painter.frame(left + line, top + line, cell + 2, pitch + 2, ground);
  painter.frame(left, top, cell + 2 * out, pitch + 2 * out, ink, line);
}
