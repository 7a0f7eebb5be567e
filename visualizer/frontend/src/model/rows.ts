/**
 * The kind of a row of a step. The engine has no phases; it computes the tokens that are not computed yet.
 *
 * @param request as it was when the row was scheduled
 * @returns catch-up: recomputed after a preemption, or forced
 */
import type { Events } from "./events.ts";
import type { RequestSpan } from "./request_spans.ts";

export function rowKind(
  row: Events["ScheduledRow"],
  { prompt_length, length }: { prompt_length: number; length: number },
): "prefill" | "decode" | "catchup" {
  const start = row[1];
  const tokens = row[2] - (row[3]?.length ?? 0);
  if (start < prompt_length) return "prefill";
  return tokens > 1 || start + tokens < length ? "catchup" : "decode";
}

/** Why a request's row of a step was in vain; undefined if it was not. */
export function rowWasted({ segments }: RequestSpan, step: number) {
  return segments.find(({ from, wasted }) => wasted && from === step)?.wasted;
}
