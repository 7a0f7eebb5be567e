/**
 * The time axis: the visible steps and their positions. Pure functions.
 *
 * The default axis has steps of equal width; the other has wall time, see
 * `wall_axis.ts`. A place on an axis is a number; a view `{from, to}` is the visible part of it.
 */

/** places */
export type View = { from: number; to: number };

export interface Axis {
  kind: "steps" | "time";
  from: number;
  to: number;
  typical: number; // what a step covers
  smallest: number; // the least that a view covers
  begin: (step: number) => number; // a place
  end: (step: number) => number;
  stepAt: (place: number) => number;
  firstAt?: (place: number) => number; // the first step to draw from a place on, if not `stepAt`
  moment?: (time: number) => number; // the place of a time in the log (us)
}

/** a view in pixels */
export type Scale = ReturnType<typeof timeScale>;

/** The axis of steps. */
export function stepAxis({ first, last }: { first: number; last: number }): Axis {
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

/** The view that shows all of an axis. */
export function wholeView({ from, to }: View) {
  return { from, to };
}

/** Maps steps to x and back for a view laid over `left .. right`. */
export function timeScale(view: View, left: number, right: number, axis: Axis) {
  const per = (right - left) / (view.to - view.from);
  const at = (place: number) => left + (place - view.from) * per;
  return {
    kind: axis.kind,
    left,
    right,
    /** Pixels for one unit of the axis. */
    per,
    /** Width of a step; on a time axis, of a typical one. */
    width: axis.typical * per,
    /** Left edge of a step, its right edge, and its middle. */
    x: (step: number) => at(axis.begin(step)),
    end: (step: number) => at(axis.end(step)),
    middle: (step: number) => (at(axis.begin(step)) + at(axis.end(step))) / 2,
    /** The position of a time in the log (us); undefined on an axis of steps. */
    moment: (time: number | null) =>
      axis.moment && time != null ? at(axis.moment(time)) : undefined,
    at,
    placeAt: (x: number) => view.from + (x - left) / per,
    /** The step at x, which may lie outside the view. */
    stepAt: (x: number) => axis.stepAt(view.from + (x - left) / per),
    /** The first and last step that are at least partly visible. */
    first: (axis.firstAt ?? axis.stepAt)(view.from),
    last: axis.kind === "steps" ? Math.ceil(view.to) - 1 : axis.stepAt(view.to),
  };
}

/** Pushes a view back inside the axis, keeping its width where that is possible. */
export function clampView({ from, to }: View, axis: Axis): View {
  const width = Math.min(Math.max(to - from, axis.smallest), axis.to - axis.from);
  const start = Math.min(Math.max(from, axis.from), axis.to - width);
  return { from: start, to: start + width };
}

/** The view, `factor` times as wide; `anchor`, a place, stays where it is. */
export function zoomView(view: View, factor: number, anchor: number, axis: Axis) {
  const width = view.to - view.from;
  const share = (anchor - view.from) / width;
  const wider = Math.min(Math.max(width * factor, axis.smallest), axis.to - axis.from);
  return clampView({ from: anchor - share * wider, to: anchor + (1 - share) * wider }, axis);
}

/** The view moved by `delta`. */
export function panView(view: View, delta: number, axis: Axis) {
  return clampView({ from: view.from + delta, to: view.to + delta }, axis);
}

/** The view, moved if `step` is not well inside it. */
export function revealStep(view: View, step: number, axis: Axis) {
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

/** The smallest of 1, 2, 5, 10, 20 ... units of `per` pixels each that is at least `spacing` pixels. */
export function roundUnit(per: number, spacing: number) {
  for (let power = 1; ; power *= 10)
    for (const digit of [1, 2, 5]) if (!(digit * power * per < spacing)) return digit * power;
}

/** Steps to label on the axis: multiples of 1, 2, 5, 10 ... at least `spacing` pixels apart. */
export function axisTicks(scale: Pick<Scale, "width" | "first" | "last">, spacing: number = 50) {
  const unit = roundUnit(scale.width, spacing);
  const ticks = [];
  for (let step = Math.ceil(scale.first / unit) * unit; step <= scale.last; step += unit) {
    if (step >= scale.first) ticks.push(step);
  }
  return ticks;
}
