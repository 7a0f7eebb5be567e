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
const LABEL = 22; // px of a mark with its count
const CLUSTER = 34; // px that one mark stands for at most

/** the moments that one mark stands for */
type Cluster = { from: number; last: number; bits: number; counts: Map<MomentKind, number> };

/**
 * Draws the marks of `columns` (steps or groups of them) with their tops at `top`. Moments that are too close for marks
 * of their own have one mark, the most telling, and the number of steps that have it.
 */
export function drawMoments(
  painter: CanvasPainter,
  { model }: { model: Model },
  columns: Column[],
  top: number,
) {
  let cluster: Cluster | null = null;
  for (const { x, width, from, to } of columns) {
    const { bits, counts } = momentsIn(model, from, to);
    if (!bits) continue;
    const middle = x + width / 2;
    const isMany = cluster && [...cluster.counts.values()].reduce((sum, one) => sum + one, 0) > 1;
    const isClose = cluster && middle - cluster.last < (isMany ? LABEL : SIZE);
    if (cluster && isClose && width < SIZE - 2 && middle - cluster.from < CLUSTER) {
      cluster.last = middle;
      cluster.bits |= bits;
      for (const [kind, count] of counts)
        cluster.counts.set(kind, count + (cluster.counts.get(kind) ?? 0));
      continue;
    }
    if (cluster) drawCluster(painter, cluster, top);
    cluster = { from: middle, last: middle, bits, counts };
  }
  if (cluster) drawCluster(painter, cluster, top);
}

/** What happens in a column, and in how many of its steps each kind is the most telling. */
function momentsIn({ measures: { happened } }: Model, from: number, to: number) {
  const counts: Map<MomentKind, number> = new Map();
  let bits = 0;
  for (let i = from; i <= to; i += 1) {
    const kind = momentKind(happened.at(i));
    if (!kind) continue;
    bits |= happened.at(i);
    counts.set(kind, 1 + (counts.get(kind) ?? 0));
  }
  return { bits, counts };
}

/** Finishes are common, and their number says little. */
function drawCluster(painter: CanvasPainter, { from, bits, counts }: Cluster, top: number) {
  const kind = momentKind(bits);
  if (!kind) return;
  MARKS[kind](painter, from, top, painter.theme);
  const count = counts.get(kind) ?? 0;
  if (count < 2 || kind === "finished") return;
  const words = count < 1000 ? `${count}` : `${(count / 1000).toFixed(count < 9950 ? 1 : 0)}k`;
  const { ink, muted } = painter.theme;
  const bold = kind === "preempted";
  painter.text(words, from + 6, top + 9, { size: 9.5, bold, color: bold ? ink : muted });
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
