/**
 * The time axis: the visible steps and their positions. Pure functions.
 *
 * The default axis has steps of equal width; the other has wall time, see
 * `wall_axis.js`. A place on an axis is a number; a view `{from, to}` is the visible part of it.
 *
 * @typedef {{from: number, to: number}} View  places
 * @typedef {object} Axis
 * @property {"steps" | "time"} kind
 * @property {number} from
 * @property {number} to
 * @property {number} typical   what a step covers
 * @property {number} smallest  the least that a view covers
 * @property {(step: number) => number} begin  a place
 * @property {(step: number) => number} end
 * @property {(place: number) => number} stepAt
 * @property {(place: number) => number} [firstAt]  the first step to draw from a place on, if not `stepAt`
 * @property {(time: number) => number} [moment]    the place of a time in the log (us)
 * @typedef {ReturnType<typeof timeScale>} Scale  a view in pixels
 */

/** The axis of steps. @param {{first: number, last: number}} log @returns {Axis} */
export function stepAxis({ first, last }) {
  return {
    kind: "steps",
    from: first,
    to: Math.max(first, last) + 1,
    typical: 1,
    smallest: 8,
    begin: (step) => step,
    end: (step) => step + 1,
    stepAt: Math.floor,
  };
}

/** The view that shows all of an axis. @param {View} axis */
export function wholeView({ from, to }) {
  return { from, to };
}

/**
 * Maps steps to x and back for a view laid over `left .. right`.
 *
 * @param {View} view @param {number} left @param {number} right @param {Axis} axis
 */
export function timeScale(view, left, right, axis) {
  const per = (right - left) / (view.to - view.from);
  /** @param {number} place */
  const at = (place) => left + (place - view.from) * per;
  return {
    kind: axis.kind,
    left,
    right,
    /** Pixels for one unit of the axis. */
    per,
    /** Width of a step; on a time axis, of a typical one. */
    width: axis.typical * per,
    /** Left edge of a step, its right edge, and its middle. @type {(step: number) => number} */
    x: (step) => at(axis.begin(step)),
    /** @type {(step: number) => number} */
    end: (step) => at(axis.end(step)),
    /** @type {(step: number) => number} */
    middle: (step) => (at(axis.begin(step)) + at(axis.end(step))) / 2,
    /**
     * The position of a time in the log (us); undefined on an axis of steps.
     *
     * @type {(time: number | null) => number | undefined}
     */
    moment: (time) => (axis.moment && time != null ? at(axis.moment(time)) : undefined),
    at,
    /** @type {(x: number) => number} */
    placeAt: (x) => view.from + (x - left) / per,
    /** The step at x, which may lie outside the view. @type {(x: number) => number} */
    stepAt: (x) => axis.stepAt(view.from + (x - left) / per),
    /** The first and last step that are at least partly visible. */
    first: (axis.firstAt ?? axis.stepAt)(view.from),
    last: axis.kind === "steps" ? Math.ceil(view.to) - 1 : axis.stepAt(view.to),
  };
}

/**
 * Pushes a view back inside the axis, keeping its width where that is possible.
 *
 * @param {View} view @param {Axis} axis
 * @returns {View}
 */
export function clampView({ from, to }, axis) {
  const width = Math.min(Math.max(to - from, axis.smallest), axis.to - axis.from);
  const start = Math.min(Math.max(from, axis.from), axis.to - width);
  return { from: start, to: start + width };
}

/**
 * The view, `factor` times as wide; `anchor`, a place, stays where it is.
 *
 * @param {View} view @param {number} factor @param {number} anchor @param {Axis} axis
 */
export function zoomView(view, factor, anchor, axis) {
  const width = view.to - view.from;
  const share = (anchor - view.from) / width;
  const wider = Math.min(Math.max(width * factor, axis.smallest), axis.to - axis.from);
  return clampView({ from: anchor - share * wider, to: anchor + (1 - share) * wider }, axis);
}

/** The view moved by `delta`. @param {View} view @param {number} delta @param {Axis} axis */
export function panView(view, delta, axis) {
  return clampView({ from: view.from + delta, to: view.to + delta }, axis);
}

/** The view, moved if `step` is not well inside it. @param {View} view @param {number} step @param {Axis} axis */
export function revealStep(view, step, axis) {
  const width = view.to - view.from;
  const margin = Math.min(2 * axis.typical, width / 4);
  const from = axis.begin(step);
  if (from < view.from + margin)
    return clampView({ from: from - width / 4, to: from + (3 * width) / 4 }, axis);
  const right = Math.min(axis.end(step), from + axis.typical);
  if (right > view.to - margin)
    return clampView({ from: from - (3 * width) / 4, to: from + width / 4 }, axis);
  return view;
}

/**
 * Steps to label on the axis: multiples of 1, 2, 5, 10 ... at least `spacing` pixels apart.
 *
 * @param {Pick<Scale, "width" | "first" | "last">} scale @param {number} [spacing]
 */
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
