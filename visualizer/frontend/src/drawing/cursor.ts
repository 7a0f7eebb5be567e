/** The cursor across strip and lanes: the step's band, its two edges, and the veil over later steps. */

import type { CanvasPainter } from "./canvas_painter.ts";
import type { Scale } from "./time_axis.ts";

/** untouched: the reader has not moved yet; at: the cursor is this place on the axis, not a step */
export type CursorScene = { scale: Scale; step: number; untouched?: boolean; at?: number };

/** Opacity of everything after the cursor. */
export const AFTER = 0.42;

/** The pale band of the cursor's step, below everything else, if the step is in view. */
export function cursorBand(
  painter: CanvasPainter,
  { scale, step, at }: CursorScene,
  top: number,
  bottom: number,
) {
  if (at !== undefined) return;
  const left = Math.max(scale.x(step) - 0.5, scale.left - 1);
  const right = Math.min(Math.max(scale.end(step), scale.x(step) + 1) + 0.5, scale.right + 1);
  if (scale.end(step) > scale.left && scale.x(step) < scale.right)
    painter.fill(left, top, right - left, bottom - top, painter.theme.band);
}

/** The two edges of the cursor's step, or one line if a step is too thin for two. */
export function cursorLines(
  painter: CanvasPainter,
  { scale, step, at }: CursorScene,
  top: number,
  bottom: number,
) {
  if (at !== undefined) return;
  painter.faded(0.55, () => {
    const [left, right] = [scale.x(step), scale.end(step)];
    const edges = right - left < 3 ? [scale.middle(step)] : [left - 0.5, right + 0.5];
    for (const x of edges) {
      if (x >= scale.left - 1 && x <= scale.right + 1)
        painter.line(x, top, x, bottom, painter.theme.ink);
    }
  });
}

/** The step after which everything is faded; none before the reader has moved. */
export const fadedAfter = ({ step, untouched }: CursorScene) => (untouched ? Infinity : step);

/** Reduces everything after the cursor to 42% opacity. */
export function veil(
  painter: CanvasPainter,
  scene: CursorScene,
  top: number,
  height: number,
  ground: string,
  right: number = scene.scale.right,
) {
  if (scene.untouched) return;
  const { scale, step, at } = scene;
  const x = Math.max(scale.left, at === undefined ? scale.end(step) : scale.at(at));
  if (x >= right) return;
  painter.faded(1 - AFTER, () => painter.fill(x, top, right - x, height, ground));
}
