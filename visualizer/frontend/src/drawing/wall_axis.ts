/**
 * Wall time as the time axis: a place on it is a time in microseconds since the run began, a step covers the
 * time from its start to its end, and between two steps there may be a pause. Pure functions.
 */

import { firstWhere } from "../model/columns.ts";
import type { Model } from "../model/model.ts";
import { stepTimes } from "../model/step_times.ts";
import { type Axis, roundUnit, type Scale } from "./time_axis.ts";

/** The origin of a run's times: the start of its first step if the log has it, otherwise the engine's zero. */
export function originOf({
  firstStep,
  measures: { start },
}: Pick<Model, "firstStep" | "measures">) {
  return (firstStep === 1 && start?.at(0)) || 0;
}

/** The axis of a model, or null if its log has no times. See `stepAxis`. `origin` is the time in the log of place 0. */
export function wallAxis(model: Model, origin: number = originOf(model)): Axis | null {
  const { firstStep, stepCount } = model;
  const times = stepTimes(model, origin);
  if (!times) return null;
  const { begins, ends } = times;
  const at = (step: number) => Math.min(Math.max(step - firstStep, 0), stepCount - 1);
  /** The last step that had begun; in a pause, the one before it. */
  const stepAt = (time: number) =>
    firstStep + Math.max(0, firstWhere(stepCount, (index) => begins[index] > time) - 1);
  const typical = median(begins, ends);
  return {
    kind: "time",
    from: begins[0],
    to: ends[stepCount - 1],
    typical,
    smallest: 2 * typical,
    begin: (step) => (step > model.lastStep ? ends[stepCount - 1] : begins[at(step)]),
    end: (step) => (step < firstStep ? begins[0] : ends[at(step)]),
    moment: (time) => time - origin,
    stepAt,
    /** The first step to draw from there on: steps without width may begin at the same time. */
    firstAt(time: number) {
      let step = stepAt(time);
      while (step > firstStep && begins[at(step - 1)] >= time) step -= 1;
      return step;
    },
  };
}

/** A place at which busy time leaves something out: a pause, or time without anything to do, in us. */
export type Break = { place: number; length: number };

/** Shorter breaks than this share of the run are not worth a mark. */
const LEAST_BREAK = 0.01;

/**
 * The wall axis without the time in which no step ran, or null if the log has no times. A run that was paused or idle
 * is not a slow one, so two runs are compared on this axis. It counts from the start of the first step.
 */
export function busyAxis(model: Model): (Axis & { breaks: Break[] }) | null {
  const { firstStep, lastStep, stepCount } = model;
  const wall = wallAxis(model);
  if (!wall) return null;
  /** The time left out before each step. */
  const out = new Float64Array(stepCount);
  const gaps: Break[] = [];
  for (let i = 0, total = wall.from; i < stepCount; i += 1) {
    const [before, begin] = [
      i ? wall.end(firstStep + i - 1) : wall.from,
      wall.begin(firstStep + i),
    ];
    if (begin > before) gaps.push({ place: before - total, length: begin - before });
    total += begin - before;
    out[i] = total;
  }
  const outBefore = (step: number) => out[Math.min(Math.max(step - firstStep, 0), stepCount - 1)];
  const begin = (step: number) => wall.begin(step) - outBefore(step);
  const end = (step: number) => wall.end(step) - outBefore(step);
  const to = end(lastStep);
  const stepAt = (place: number) =>
    firstStep + Math.max(0, firstWhere(stepCount, (i) => begin(firstStep + i) > place) - 1);
  return {
    ...wall,
    from: 0,
    to,
    begin,
    end,
    moment(time) {
      const place = wall.moment?.(time) ?? 0;
      const step = wall.stepAt(place);
      return Math.min(place - outBefore(step), end(step));
    },
    stepAt,
    firstAt(place) {
      const before = firstWhere(stepCount, (i) => begin(firstStep + i) >= place);
      return Math.min(stepAt(place), firstStep + before);
    },
    breaks: gaps.filter(({ length }) => length >= LEAST_BREAK * to),
  };
}

const MOST = 1001;

/** The median duration of steps in microseconds, sampled on a long log. */
function median(begins: Float64Array, ends: Float64Array) {
  const every = Math.ceil(begins.length / MOST);
  const took = [];
  for (let i = 0; i < begins.length; i += every)
    if (ends[i] > begins[i]) took.push(ends[i] - begins[i]);
  return took.sort((a, b) => a - b)[took.length >> 1] ?? ends[ends.length - 1] - begins[0];
}

/** Round times in view, at least `spacing` pixels apart: `[{place, words}]`. */
export function timeTicks(scale: Scale, spacing: number = 60) {
  const unit = roundUnit(scale.per, spacing);
  const ticks = [];
  const [from, to] = [scale.placeAt(scale.left), scale.placeAt(scale.right)];
  const seconds = to >= 1e6;
  const one = seconds ? 1e6 : 1000;
  const digits = Math.max(0, Math.ceil(Math.log10(one / unit) - 1e-9));
  for (let place = Math.ceil(from / unit) * unit; place <= to; place += unit)
    ticks.push({ place, words: `${(place / one).toFixed(digits)} ${seconds ? "s" : "ms"}` });
  return ticks;
}
