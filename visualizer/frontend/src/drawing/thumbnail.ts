/** A run in a small picture, for the gallery: memory, seats and queue over all steps, the blocks at one step. */

import { most } from "../model/columns.ts";
import type { Model } from "../model/model.ts";
import type { CanvasPainter } from "./canvas_painter.ts";
import { drawLife } from "./lane.ts";
import { packLanes } from "./lane_packing.ts";
import { drawMemoryArea, drawMiniMap, miniGrid } from "./mini_map.ts";
import { type Scale, stepAxis, timeScale, wholeView } from "./time_axis.ts";

const WIDTH = 260;
const MEMORY = 24;
const LANES = { top: 32, height: 92, most: 8, pitch: 22 };
const QUEUE = 16;
const GAP = 8;
const TALLEST_MAP = 34;

const QUEUE_TOP = LANES.top + LANES.height + 4;
const MAP_TOP = QUEUE_TOP + QUEUE + GAP;

/** The size of a thumbnail; all have the same. */
export const THUMBNAIL = { width: WIDTH, height: MAP_TOP + TALLEST_MAP };

/** Draws `model` with `step` marked. The painter has begun with the size of `THUMBNAIL`. */
export function drawThumbnail(painter: CanvasPainter, model: Model, step: number) {
  const axis = stepAxis({ first: model.firstStep, last: model.lastStep });
  const scale = timeScale(wholeView(axis), 0, WIDTH, axis);
  const [x, end] = [scale.x(step), Math.max(scale.end(step), scale.x(step) + 3)];
  painter.faded(0.08, () => painter.fill(x, 0, end - x, QUEUE_TOP + QUEUE, painter.theme.ink));
  drawOverTime(painter, model, scale);
  drawSeats(painter, model, scale);
  for (const edge of [x, end])
    painter.line(edge, 0, edge, QUEUE_TOP + QUEUE, painter.theme.ink, 1.2);
  const { blocks } = model.frame(step);
  const grid = miniGrid(blocks.length, WIDTH);
  painter.context.translate(0, MAP_TOP);
  painter.clipped(0, 0, WIDTH, TALLEST_MAP, () =>
    drawMiniMap(painter, blocks, grid, (id) => model.laneOf(id, step)),
  );
  painter.context.translate(0, -MAP_TOP);
}

/** Memory as an area under its capacity; the queue as columns, as high as the longest one. */
function drawOverTime(painter: CanvasPainter, model: Model, scale: Scale) {
  const { measures, firstStep, stepCount } = model;
  const { theme } = painter;
  drawMemoryArea(painter, model, scale, MEMORY, MEMORY);
  const longest = Math.max(4, most(measures.waiting, 0, stepCount - 1));
  for (let i = 0; i < stepCount; i += 1) {
    const queue = (QUEUE * measures.waiting.at(i)) / longest;
    const width = Math.max(0.5, scale.width - 0.5);
    painter.fill(scale.x(firstStep + i), QUEUE_TOP + QUEUE - queue, width, queue, theme.faint);
  }
  painter.line(0, 0.5, WIDTH, 0.5, theme.muted, 1, [2, 2]);
}

/** One row per lane, with its requests from their admission on. */
function drawSeats(painter: CanvasPainter, model: Model, scale: Scale) {
  const lanes = packLanes(model).lanes.slice(0, Math.min(model.laneCount, LANES.most));
  const pitch = Math.min(LANES.pitch, LANES.height / Math.max(1, lanes.length));
  const scene = {
    scale,
    packing: { lanes },
    model,
    laneHeight: Math.round(pitch),
    end: WIDTH,
    narrow: true,
    step: Infinity,
  };
  lanes.forEach((stays, lane) => {
    const base = LANES.top + (lane + 1) * pitch - 4;
    for (const stay of stays) drawLife(painter, scene, stay, base);
  });
}
