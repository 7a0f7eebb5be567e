/**
 * The waiting requests in one band: a cell per request and step, coloured by the reason why it waits. Preempted requests
 * are at the bottom, above them the head of the queue, and on top, at half strength, those that wait behind the head.
 */

import type { Model } from "../model/model.ts";
import { waitIn } from "../model/request_spans.ts";
import { FOR_ALL } from "../model/waits.ts";
import type { CanvasPainter } from "./canvas_painter.ts";
import { fillCause } from "./causes.ts";
import { type CursorScene, cursorBand, cursorLines, veil } from "./cursor.ts";
import { type Column, columnsOf, longestQueue } from "./strip.ts";

/** still: a key of what is drawn; stack: px for the cells */
type BandScene = CursorScene & {
  model: Model;
  selected: number | null;
  still: string;
  stack?: number;
};

const STACK = 36; // px
const TALLEST_CELL = 5;
const TOP = 8; // px below the lanes
/** The height of a band with `stack` px for its cells. */
export const bandHeight = (stack = STACK) => TOP + stack + 2;
/** Opacity of the cells of requests that wait behind another. */
export const BEHIND = 0.5;

/** The waiting requests of a step by cause, from the bottom. */
export function waitingParts(
  model: Model,
  step: number,
): { cause: string; count: number; isBehind?: boolean }[] {
  const { waiting, suspended } = model.measures;
  const index = step - model.firstStep;
  const { reason, head, deferred } = model.waitIn(step);
  const others = waiting.at(index) - suspended.at(index);
  const slotless = Math.min(deferred.adapter_slot, others);
  const putOff = Math.min(deferred.policy, others - slotless);
  const rest = others - putOff - slotless;
  const span = model.request(head);
  const isPreempted = span && waitIn(span, step)?.kind === "preempted";
  const isHeadHere = rest > 0 && reason !== null && !isPreempted;
  const cause = reason ?? "unknown";
  const first = FOR_ALL.has(cause) ? rest : Number(isHeadHere);
  return [
    { cause: "preempted", count: suspended.at(index) },
    { cause: "policy", count: putOff },
    { cause: "adapter_slot", count: slotless },
    { cause, count: first },
    { cause, count: rest - first, isBehind: true },
  ].filter(({ count }) => count > 0);
}

/** Draws the band. */
export function drawBand(painter: CanvasPainter, scene: BandScene) {
  const { model, scale, still, stack = STACK } = scene;
  const height = bandHeight(stack);
  const bottom = TOP + stack;
  cursorBand(painter, scene, 0, height);
  const unit = Math.min(TALLEST_CELL, stack / Math.max(1, longestQueue(model)));
  const layer = painter.layer(still, (kept) => {
    for (const column of columnsOf(model, scale)) drawColumn(kept, scene, column, unit, bottom);
  });
  const { left, right } = scale;
  painter.clipped(left - 1, 0, right - left + 2, height, () => painter.lay(layer));
  painter.line(scale.left, bottom + 0.5, scale.right, bottom + 0.5, painter.theme.rule);
  drawChosen(painter, scene);
  veil(painter, scene, 0, bottom, painter.theme.ground);
  cursorLines(painter, scene, 0, height);
}

/** A column of one step, or of the step with the longest queue among several. */
function drawColumn(
  painter: CanvasPainter,
  { model, scale }: BandScene,
  { x, width, from, to }: Column,
  unit: number,
  bottom: number,
) {
  const { waiting } = model.measures;
  let longest = from;
  for (let i = from; i <= to; i += 1) if (waiting.at(i) > waiting.at(longest)) longest = i;
  if (!waiting.at(longest)) return;
  const slit = scale.width >= 4 ? 0.5 : 0;
  const isCell = unit >= 3 && scale.width >= 4;
  let y = bottom;
  for (const { cause, count, isBehind } of waitingParts(model, model.firstStep + longest)) {
    painter.faded(isBehind ? BEHIND : 1, () => {
      const pieces = isCell ? count : 1;
      const height = (count * unit) / pieces;
      for (let i = 0; i < pieces; i += 1) {
        y -= height;
        const rect = [
          x + slit,
          y,
          Math.max(0.5, width - 2 * slit),
          height - (isCell ? 1 : 0),
        ] as const;
        fillCause(painter, cause, [...rect]);
      }
    });
  }
}

/** The waits of the selected request: a line above the cells. */
function drawChosen(painter: CanvasPainter, { model, scale, selected }: BandScene) {
  const { ink } = painter.theme;
  for (const { kind, from, to } of model.request(selected)?.segments ?? []) {
    if (kind !== "waiting" && kind !== "preempted") continue;
    const left = Math.max(scale.x(from), scale.left);
    const right = Math.min(scale.end(to ?? model.lastStep), scale.right);
    if (right > left) painter.line(left, TOP - 3, right, TOP - 3, ink, 2);
  }
}
