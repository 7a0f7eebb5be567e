/**
 * Which requests, steps and times of two runs correspond. Pure functions.
 *
 * @typedef {(side: number, id: number | null) => number | null} PartnerOf  side: 0 for A, 1 for B
 */

/** @import { Model } from "../model/model.js" */
/** @import { Facts } from "./compare.js" */
import { originOf } from "../drawing/wall_axis.js";

/**
 * Maps the requests of each run to those of the other: `partnerOf(side, id)` is the id in the run `side` of a
 * request of the other run, or null. `renumbered` has [id in A, id in B] of requests with two ids; `unmatched` has
 * the ids that only A has, and those that only B has.
 *
 * @param {Pick<Facts, "renumbered" | "unmatched">} facts
 * @returns {PartnerOf}
 */
export function partners({ renumbered, unmatched }) {
  const maps = [new Map(renumbered.map(([a, b]) => [b, a])), new Map(renumbered)];
  const alone = unmatched.map((ids) => new Set(ids));
  return (side, id) => (id == null || alone[1 - side].has(id) ? null : (maps[side].get(id) ?? id));
}

/**
 * The end of a step in us since its run began; NaN if the log has no times.
 *
 * @param {Model} model @param {number} step
 */
export function timeOf(model, step) {
  return model.measures.end[step - model.firstStep] - originOf(model);
}

/**
 * The last step that had ended at a time, or the first step; `otherwise` if the log has no times.
 *
 * @param {Model} model @param {number} time @param {number} otherwise
 */
export function stepAtTime(model, time, otherwise) {
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
 *
 * @param {Model} model @param {Model} other @param {number} step @param {number | null | undefined} fork
 * @param {boolean} byTime
 */
export function stepFor(model, other, step, fork, byTime) {
  const same = Math.min(Math.max(step, model.firstStep), model.lastStep);
  if (!byTime || fork == null || step <= fork) return same;
  return stepAtTime(model, timeOf(other, step), same);
}
