/** The fate of a block that a preempted or finished request released, at the end of the step. */

import type { State } from "./fold.ts";

export type Fate = { fate: "others" | "cached" | "taken" | "free"; to: number | null };

/**
 * @param seq number of the event that released it
 * @param taken blocks allocated in the step
 * @param preemptions in the step
 * @param state at the end of the step
 */
export function fateOf(
  block: number,
  seq: number,
  taken: { request: number; block: number; seq: number }[],
  preemptions: { request: number; seq: number }[],
  state: State,
): Fate {
  const last = taken.findLast((one) => one.block === block && one.seq > seq);
  const lostAgain = preemptions.some(
    (one) => last && one.request === last.request && one.seq > last.seq,
  );
  if (last && !lostAgain) return { fate: "taken", to: last.request };
  const holders = state.refs(block) - Number(state.inTree(block));
  if (holders) return { fate: "others", to: null };
  return { fate: state.inTree(block) ? "cached" : "free", to: null };
}
