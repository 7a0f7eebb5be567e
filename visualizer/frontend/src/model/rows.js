/**
 * The kind of a row of a step. The engine has no phases; it computes the tokens that are not computed yet.
 *
 * @param {import("./events.js").ScheduledRow} row
 * @param {{promptLength: number, length: number}} request  as it was when the row was scheduled
 * @returns {"prefill" | "decode" | "catchup"}  catch-up: recomputed after a preemption, or forced
 */
export function rowKind(row, { promptLength, length }) {
  const start = row[1];
  const tokens = row[2] - (row[3]?.length ?? 0);
  if (start < promptLength) return "prefill";
  return tokens > 1 || start + tokens < length ? "catchup" : "decode";
}

/**
 * Why a request's row of a step was in vain; undefined if it was not.
 *
 * @param {import("./request_spans.js").RequestSpan} span
 * @param {number} step
 */
export function rowWasted({ segments }, step) {
  return segments.find(({ from, wasted }) => wasted && from === step)?.wasted;
}
