/** When steps ran. Steps may overlap, and the log may lack some of their times. */

import type { Model } from "./model.ts";

type Timed = Pick<Model, "measures" | "stepCount">;

/** Visits the steps one after the other, each with its times since `origin`; NaN before the first step that has times. */
function visit(
  { measures, stepCount }: Timed,
  origin: number,
  take: (begin: number, end: number, index: number) => void,
) {
  // A step without times is still running and has no width yet.
  for (let i = 0, now = NaN; i < stepCount; i += 1) {
    const [start, end] = [measures.start.at(i) - origin, measures.end.at(i) - origin];
    const begin = Number.isFinite(start) && !(start < now) ? start : now;
    now = Number.isFinite(end) && !(end < begin) ? end : begin;
    take(begin, now, i);
  }
}

/** The steps one after the other, in microseconds since `origin`; null if the log has no times. */
export function stepTimes(model: Timed, origin: number = 0) {
  const { stepCount } = model;
  const [begins, ends] = [new Float64Array(stepCount), new Float64Array(stepCount)];
  visit(model, origin, (begin, end, i) => {
    [begins[i], ends[i]] = [begin, end];
  });
  const known = begins.findIndex((time) => !Number.isNaN(time));
  if (known < 0 || !(ends[stepCount - 1] > begins[known])) return null;
  for (const times of [begins, ends]) times.fill(begins[known], 0, known);
  return { begins, ends };
}

/** The time in which steps ran; an instant at which two of them ran counts once. */
export function busyTime(model: Timed) {
  let busy = 0;
  visit(model, 0, (begin, end) => {
    busy += end - begin || 0;
  });
  return busy;
}
