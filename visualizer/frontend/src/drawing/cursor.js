/**
 * The cursor across strip and lanes: the step's band, its two edges, and the veil over later steps.
 *
 * @typedef {{scale: Scale, step: number, untouched?: boolean, at?: number}} CursorScene
 *   untouched: the reader has not moved yet; at: the cursor is this place on the axis, not a step
 */

/** @import { CanvasPainter } from "./canvas_painter.js" */
/** @import { Scale } from "./time_axis.js" */

/** Opacity of everything after the cursor. */
export const AFTER = 0.42;

/**
 * The pale band of the cursor's step, below everything else, if the step is in view.
 *
 * @param {CanvasPainter} painter @param {CursorScene} scene @param {number} top @param {number} bottom
 */
export function cursorBand(painter, { scale, step, at }, top, bottom) {
  if (at !== undefined) return;
  const left = Math.max(scale.x(step) - 0.5, scale.left - 1);
  const right = Math.min(Math.max(scale.end(step), scale.x(step) + 1) + 0.5, scale.right + 1);
  if (scale.end(step) > scale.left && scale.x(step) < scale.right)
    painter.fill(left, top, right - left, bottom - top, painter.theme.band);
}

/**
 * The two edges of the cursor's step, or one line if a step is too thin for two.
 *
 * @param {CanvasPainter} painter @param {CursorScene} scene @param {number} top @param {number} bottom
 */
export function cursorLines(painter, { scale, step, at }, top, bottom) {
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

/** The step after which everything is faded; none before the reader has moved. @param {CursorScene} scene */
export const fadedAfter = ({ step, untouched }) => (untouched ? Infinity : step);

/**
 * Reduces everything after the cursor to 42% opacity.
 *
 * @param {CanvasPainter} painter @param {CursorScene} scene @param {number} top @param {number} height
 * @param {string} ground @param {number} [right]
 */
export function veil(painter, scene, top, height, ground, right = scene.scale.right) {
  if (scene.untouched) return;
  const { scale, step, at } = scene;
  const x = Math.max(scale.left, at === undefined ? scale.end(step) : scale.at(at));
  if (x >= right) return;
  painter.faded(1 - AFTER, () => painter.fill(x, top, right - x, height, ground));
}
