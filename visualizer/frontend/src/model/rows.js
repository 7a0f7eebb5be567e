/**
 * What a row of a step is. The engine knows no phases: it computes tokens that are not computed yet.
 *
 * @param {[number, number, number, number[]]} row  request, start, count, drafts
 * @param {{promptLength: number, length: number}} request  as it was when the row was scheduled
 * @returns {"prefill" | "decode" | "catchup"}  catch-up: recomputed after a preemption, or forced
 */
export function rowKind([, start, count, drafts], { promptLength, length }) {
  const tokens = count - drafts.length;
  if (start < promptLength) return "prefill";
  return tokens > 1 || start + tokens < length ? "catchup" : "decode";
}
