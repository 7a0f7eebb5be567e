/** Which requests, steps and times of two runs correspond. Pure functions. */

import { originOf } from "../drawing/wall_axis.ts";
import type { Model } from "../model/model.ts";
import type { Facts } from "./compare.ts";

/** side: 0 for A, 1 for B */
export type PartnerOf = (side: number, id: number | null) => number | null;

/**
 * Maps the requests of each run to those of the other: `partnerOf(side, id)` is the id in the run `side` of a
 * request of the other run, or null. `renumbered` has [id in A, id in B] of requests with two ids; `unmatched` has
 * the ids that only A has, and those that only B has.
 */
export function partners({
  renumbered,
  unmatched,
}: Pick<Facts, "renumbered" | "unmatched">): PartnerOf {
  const maps = [new Map(renumbered.map(([a, b]) => [b, a])), new Map(renumbered)];
  const alone = unmatched.map((ids) => new Set(ids));
  return (side, id) => (id == null || alone[1 - side].has(id) ? null : (maps[side].get(id) ?? id));
}

/** The end of a step in us since its run began; NaN if the log has no times. */
export function timeOf(model: Model, step: number) {
  return model.measures.end[step - model.firstStep] - originOf(model);
}

/** The last step that had ended at a time, or the first step; `otherwise` if the log has no times. */
export function stepAtTime(model: Model, time: number, otherwise: number) {
  const { end } = model.measures;
  const origin = originOf(model);
  if (!(time >= 0)) return otherwise;
  let [low, high] = [0, model.stepCount - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    // A step that has not ended has no time; it comes after all steps that have.
    if (end[middle] - origin <= time) low = middle;
    else high = middle - 1;
  }
  return model.firstStep + low;
}

/**
 * The step of one run that corresponds to `step` of the other: the same step up to the fork, where both decided
 * alike, and by time after it.
 */
export function stepFor(
  model: Model,
  other: Model,
  step: number,
  fork: number | null | undefined,
  byTime: boolean,
) {
  const same = Math.min(Math.max(step, model.firstStep), model.lastStep);
  if (!byTime || fork == null || step <= fork) return same;
  return stepAtTime(model, timeOf(other, step), same);
}
