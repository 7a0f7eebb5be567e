/** The cursor across strip and lanes: the step's band, its two edges, and the veil over what follows. */

/** What lies after the cursor keeps this much of its opacity. */
export const AFTER = 0.42;

/** The pale band of the cursor's step, below everything else; none where the step is out of view. */
export function cursorBand(painter, { scale, step }, top, bottom) {
  const left = Math.max(scale.x(step) - 0.5, scale.left - 1);
  const right = Math.min(Math.max(scale.end(step), scale.x(step) + 1) + 0.5, scale.right + 1);
  if (scale.end(step) > scale.left && scale.x(step) < scale.right)
    painter.fill(left, top, right - left, bottom - top, painter.theme.band);
}

/** The two edges of the cursor's step; one line where a step is too thin for two. */
export function cursorLines(painter, { scale, step }, top, bottom) {
  painter.faded(0.55, () => {
    const [left, right] = [scale.x(step), scale.end(step)];
    const edges = right - left < 3 ? [scale.middle(step)] : [left - 0.5, right + 0.5];
    for (const x of edges) {
      if (x >= scale.left - 1 && x <= scale.right + 1)
        painter.line(x, top, x, bottom, painter.theme.ink);
    }
  });
}

/** Leaves 42% of whatever was drawn after the cursor. */
export function veil(painter, scale, step, top, height, ground, right = scale.right) {
  const x = Math.max(scale.left, scale.end(step));
  if (x >= right) return;
  painter.faded(1 - AFTER, () => painter.fill(x, top, right - x, height, ground));
}
