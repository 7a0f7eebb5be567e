/**
 * The marks of moments on the strip, one per step, the most telling one: a filled triangle is a preemption, an open
 * one an eviction, a hatched square a cache hit, two slanted lines a gap in the log; further a fork or a copy, a finish, an abort and an error.
 */

import type { Model } from "../model/model.ts";
import { type MomentKind, momentKind } from "../model/moments.ts";
import type { CanvasPainter } from "./canvas_painter.ts";
import type { Theme } from "./palette.ts";
import type { Column } from "./strip.ts";

const SIZE = 8; // px; marks closer than this are joined

/** Draws the marks of `columns` (steps or groups of them) with their tops at `top`. */
export function drawMoments(
  painter: CanvasPainter,
  { model }: { model: Model },
  columns: Column[],
  top: number,
) {
  const { happened } = model.measures;
  let group: { x: number; bits: number } | null = null;
  const flush = () => {
    const kind = group && momentKind(group.bits);
    if (group && kind) MARKS[kind](painter, group.x, top, painter.theme);
    group = null;
  };
  for (const { x, width, from, to } of columns) {
    let bits = 0;
    for (let i = from; i <= to; i += 1) bits |= happened[i];
    if (!bits) continue;
    const middle = x + width / 2;
    if (group && middle - group.x < SIZE && width < SIZE - 2) {
      // The more telling of two close marks stays at its place.
      if (momentKind(group.bits | bits) !== momentKind(group.bits)) group.x = middle;
      group.bits |= bits;
      continue;
    }
    flush();
    group = { x: middle, bits };
  }
  flush();
}

const MARKS: Record<
  MomentKind,
  (painter: CanvasPainter, x: number, top: number, theme: Theme) => void
> = {
  missing(painter, x, top, { ink }) {
    for (const at of [x - 2, x + 2]) painter.line(at + 1.5, top, at - 1.5, top + 9, ink, 1.2);
  },
  preempted(painter, x, top, { ink }) {
    painter.tip(x, top + 8.5, "down", ink, 8.5);
  },
  evicted(painter, x, top, { ink }) {
    const { context } = painter;
    context.beginPath();
    context.moveTo(x - 3.6, top + 1.5);
    context.lineTo(x + 3.6, top + 1.5);
    context.lineTo(x, top + 7.3);
    context.lineTo(x - 3.6, top + 1.5);
    context.strokeStyle = ink;
    context.lineWidth = 1;
    context.stroke();
  },
  hit(painter, x, top, { muted }) {
    painter.fill(x - 2.5, top + 3, 5, 5, painter.hatch(muted, 1.2));
    painter.frame(x - 2.5, top + 3, 5, 5, muted);
  },
  forked(painter, x, top, { ink }) {
    painter.line(x, top + 8.5, x, top + 5, ink, 1.2);
    painter.line(x, top + 5, x - 3, top + 1, ink, 1.2);
    painter.line(x, top + 5, x + 3, top + 1, ink, 1.2);
  },
  copied(painter, x, top, { ink }) {
    painter.frame(x - 4, top + 1, 5, 5, ink);
    painter.frame(x - 1, top + 3.5, 5, 5, ink);
  },
  finished(painter, x, top, { faint }) {
    painter.fill(x - 0.75, top + 2.5, 1.5, 6, faint);
  },
  aborted(painter, x, top, { ink }) {
    painter.line(x - 3, top + 2, x + 3, top + 8, ink, 1.4);
    painter.line(x - 3, top + 8, x + 3, top + 2, ink, 1.4);
  },
  failed(painter, x, top, { lost }) {
    painter.fill(x - 1.25, top, 2.5, 5.5, lost);
    painter.fill(x - 1.25, top + 6.5, 2.5, 2.5, lost);
  },
};
