/** The cursor across strip and lanes: the step's band, its two edges, and the veil over what follows. */

/** What lies after the cursor keeps this much of its opacity. */
export const AFTER = 0.42;

/** The pale band of the cursor's step, below everything else; none where the step is out of view. */
export function cursorBand(pencil, { scale, step }, top, bottom) {
  const left = Math.max(scale.x(step) - 0.5, scale.left - 1);
  const right = Math.min(Math.max(scale.end(step), scale.x(step) + 1) + 0.5, scale.right + 1);
  if (scale.end(step) > scale.left && scale.x(step) < scale.right)
    pencil.fill(left, top, right - left, bottom - top, pencil.theme.band);
}

/** The two edges of the cursor's step; one line where a step is too thin for two. */
export function cursorLines(pencil, { scale, step }, top, bottom) {
  pencil.faded(0.55, () => {
    const [left, right] = [scale.x(step), scale.end(step)];
    const edges = right - left < 3 ? [scale.middle(step)] : [left - 0.5, right + 0.5];
    for (const x of edges) {
      if (x >= scale.left - 1 && x <= scale.right + 1)
        pencil.line(x, top, x, bottom, pencil.theme.ink);
    }
  });
}

/** Leaves 42% of whatever was drawn after the cursor. */
export function veil(pencil, scale, step, top, height, ground, right = scale.right) {
  const x = Math.max(scale.left, scale.end(step));
  if (x >= right) return;
  pencil.faded(1 - AFTER, () => pencil.fill(x, top, right - x, height, ground));
}
