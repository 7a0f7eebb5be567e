/** Which requests, steps and times of two runs correspond. Pure functions. */

import type { Axis } from "../drawing/time_axis.ts";
import { firstWhere } from "../model/columns.ts";
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

/**
 * The step of one run that corresponds to `step` of the other: the same step up to the fork, where both decided
 * alike, and on axes of time the last one that had ended then. `axes` has that of `model`, then that of the other run.
 */
export function stepFor(
  { firstStep, lastStep }: Pick<Model, "firstStep" | "lastStep">,
  [axis, other]: Axis[],
  step: number,
  fork: number | null | undefined,
) {
  if (axis.kind === "steps" || fork == null || step <= fork)
    return Math.min(Math.max(step, firstStep), lastStep);
  const time = other.end(step);
  return (
    firstStep +
    Math.max(0, firstWhere(lastStep - firstStep + 1, (i) => axis.end(firstStep + i) > time) - 1)
  );
}
