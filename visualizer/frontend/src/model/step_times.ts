/** When steps ran. Steps may overlap, and the log may lack some of their times. */

import type { Model } from "./model.ts";

/** The steps one after the other, in microseconds since `origin`; null if the log has no times. */
export function stepTimes(
  { measures, stepCount }: Pick<Model, "measures" | "stepCount">,
  origin: number = 0,
) {
  const begins = new Float64Array(stepCount);
  const ends = new Float64Array(stepCount);
  // A step without times is still running and has no width yet.
  let now = NaN;
  for (let i = 0; i < stepCount; i += 1) {
    const [start, end] = [measures.start[i] - origin, measures.end[i] - origin];
    begins[i] = Number.isFinite(start) && !(start < now) ? start : now;
    ends[i] = Number.isFinite(end) && !(end < begins[i]) ? end : begins[i];
    now = ends[i];
  }
  const known = begins.findIndex((time) => !Number.isNaN(time));
  if (known < 0 || !(ends[stepCount - 1] > begins[known])) return null;
  for (const times of [begins, ends]) times.fill(begins[known], 0, known);
  return { begins, ends };
}

/** The time in which steps ran; an instant at which two of them ran counts once. */
export function busyTime(model: Pick<Model, "measures" | "stepCount">) {
  const times = stepTimes(model);
  return times ? times.ends.reduce((sum, end, i) => sum + end - times.begins[i], 0) : 0;
}
