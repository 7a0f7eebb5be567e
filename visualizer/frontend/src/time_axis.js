/**
 * The time axis: which steps are in view and where they lie. Pure arithmetic, no drawing.
 *
 * Steps are the axis, equal in width, because learners think in steps. Step s covers [s, s + 1) on it; a
 * view `{from, to}` is the part that is shown.
 */

const SMALLEST_VIEW = 8;

/** The view that shows every step of a log, given its `{first, last}`. */
export function wholeView({ first, last }) {
  return { from: first, to: Math.max(first, last) + 1 };
}

/** Maps steps to x and back for a view laid over `left .. right`. */
export function timeScale(view, left, right) {
  const width = (right - left) / (view.to - view.from);
  return {
    left,
    right,
    /** Width of one step. */
    width,
    /** Left edge of a step (which may be a fraction). */
    x: (step) => left + (step - view.from) * width,
    /** Its right edge, and its middle. */
    end: (step) => left + (step + 1 - view.from) * width,
    middle: (step) => left + (step - view.from) * width + width / 2,
    /** The whole step at x, which may lie outside the view. */
    stepAt: (x) => Math.floor(view.from + (x - left) / width),
    /** First and last whole step that can be seen. */
    first: Math.floor(view.from),
    last: Math.ceil(view.to) - 1,
  };
}

/** Pushes a view back inside the log, keeping its width where that is possible. */
export function clampView({ from, to }, log) {
  const whole = wholeView(log);
  const width = Math.min(Math.max(to - from, SMALLEST_VIEW), whole.to - whole.from);
  const start = Math.min(Math.max(from, whole.from), whole.to - width);
  return { from: start, to: start + width };
}

/** The view made `factor` times as wide, with `anchor` (a step) staying where it is. */
export function zoomView(view, factor, anchor, log) {
  const width = view.to - view.from;
  const share = (anchor - view.from) / width;
  const wider = Math.min(Math.max(width * factor, SMALLEST_VIEW), log.last + 1 - log.first);
  return clampView({ from: anchor - share * wider, to: anchor + (1 - share) * wider }, log);
}

/** The view moved by `delta` steps. */
export function panView(view, delta, log) {
  return clampView({ from: view.from + delta, to: view.to + delta }, log);
}

/** The view, moved only if `step` is not well inside it. */
export function revealStep(view, step, log) {
  const width = view.to - view.from;
  const margin = Math.min(2, width / 4);
  if (step < view.from + margin)
    return clampView({ from: step - width / 4, to: step + (3 * width) / 4 }, log);
  if (step + 1 > view.to - margin)
    return clampView({ from: step - (3 * width) / 4, to: step + width / 4 }, log);
  return view;
}

/** Steps to label on the axis: multiples of 1, 2, 5, 10 ... at least `spacing` pixels apart. */
export function axisTicks(scale, spacing = 50) {
  let unit = 1;
  for (let power = 1; unit * scale.width < spacing; power *= 10) {
    for (const digit of [1, 2, 5]) {
      unit = digit * power;
      if (unit * scale.width >= spacing) break;
    }
  }
  const ticks = [];
  for (let step = Math.ceil(scale.first / unit) * unit; step <= scale.last; step += unit) {
    if (step >= scale.first) ticks.push(step);
  }
  return ticks;
}
