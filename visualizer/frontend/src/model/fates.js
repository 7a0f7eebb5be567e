/**
 * The fate of a block that a preempted or finished request released, at the end of the step.
 *
 * @typedef {{fate: "others" | "cached" | "taken" | "free", to: number | null}} Fate
 */

/**
 * @param {number} block
 * @param {number} seq  number of the event that released it
 * @param {{request: number, block: number, seq: number}[]} taken  blocks allocated in the step
 * @param {{request: number, seq: number}[]} preemptions           in the step
 * @param {import("./fold.js").State} state                        at the end of the step
 * @returns {Fate}
 */
export function fateOf(block, seq, taken, preemptions, state) {
  const last = taken.findLast((one) => one.block === block && one.seq > seq);
  const lostAgain = preemptions.some(
    (one) => last && one.request === last.request && one.seq > last.seq,
  );
  if (last && !lostAgain) return { fate: "taken", to: last.request };
  const holders = state.refs(block) - Number(state.inTree(block));
  if (holders) return { fate: "others", to: null };
  return { fate: state.inTree(block) ? "cached" : "free", to: null };
}
