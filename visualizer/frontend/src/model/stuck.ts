/**
 * What is stuck: the queue of a step, with the age and the blocker of each request. `visualizer/reading/why/stuck.py` answers the
 * same; a golden test compares them.
 */

import { duration } from "./duration.ts";
import type { Frame } from "./frame.ts";
import { fill, messages, reasons, reasonWords, text } from "./messages.ts";
import type { Model } from "./model.ts";
import { waitIn } from "./request_spans.ts";
import { FOR_ALL } from "./waits.ts";
import { causeLevel } from "./waterfall_words.ts";
import type { Span } from "./words.ts";

/** a request that waits after a step was scheduled */
export interface Waiting {
  request: number;
  steps: number; // for which it has waited, this one included
  age: number | null; // microseconds since its arrival; null if the log does not know
  isPreempted: boolean;
  reason: string | null; // why it was not admitted; null if the log does not say
  behind: number | null; // the head of the queue, whose reason it is
  need: number | null; // of the head, in the reason's unit
  have: number | null;
  mark: "recorded" | "inferred" | "unknown";
}

const PUT_OFF: Set<string | null> = new Set(["policy", "adapter_slot"]);

/** The queue after a step was scheduled, in its order. */
export function stuck(model: Model, step: number): Waiting[] {
  const { scheduled } = model.stepInfo(step);
  if (scheduled === null) return [];
  const { skipped, blocked } = model.event(scheduled);
  const deferred = new Map(skipped);
  const state = model.stateBefore(scheduled);
  const now = model.measures.scheduled.at(step - model.firstStep);
  const since = scheduledSince(model, step);
  return state.waiting().map((id) => {
    const [head, reason, , need, have] = deferred.has(id)
      ? [id, deferred.get(id)]
      : (blocked ?? [id, null]);
    const isOwn = head === id || FOR_ALL.has(reason);
    const hasNumbers = !!reasons[reason]?.numbers;
    const { root } = model.requestSpan(id);
    const arrived = model.request(root)?.arrivedAt ?? null;
    return {
      request: id,
      steps: since(waitIn(model.requestSpan(id), step)?.from ?? step),
      age: arrived === null || !(now >= 0) ? null : Math.max(0, now - arrived),
      isPreempted: state.request(id).preemptions > 0,
      reason,
      behind: isOwn ? null : head,
      need: hasNumbers ? need : null,
      have: hasNumbers ? have : null,
      mark: reason === null ? "unknown" : causeLevel(reason, model.source),
    };
  });
}

/**
 * The blocker of the head of the queue, its age, and how many wait behind it; empty if no request waits.
 *
 * @param queue of its step
 */
export function stuckWords(frame: Frame, queue: Waiting[]): Span[] {
  const { model } = frame;
  const head =
    queue.find(({ behind, reason }) => behind === null && !PUT_OFF.has(reason)) ?? queue[0];
  if (!head) return [];
  const who = model.tag(head.request);
  const reason =
    head.reason === null ? messages.stuck.unknown : frame.reasonFor(head.reason, [head.request]);
  const behind = queue.filter((one) => one.behind === head.request).length;
  const rest = behind ? text(messages.stuck.rest, { behind }) : "";
  const { age, steps } = head;
  if (age === null) return fill(messages.stuck.head_steps, { who, steps, reason, rest });
  return fill(messages.stuck.head, { who, age: duration(age), reason, rest });
}

/** "behind Ada", "batch full". */
export function blockerWords(model: Model, { behind, reason }: Waiting) {
  if (behind !== null) return `behind ${model.tag(behind).text}`;
  return reason === null ? messages.stuck.unknown : reasonWords[reason];
}

/** The scheduled steps from one on up to `step`, as a function: thousands of requests may wait. */
function scheduledSince(model: Model, step: number) {
  const counts: number[] = []; // by distance
  return (from: number) => {
    for (let at = step - counts.length; at >= from; at--)
      counts.push((counts.at(-1) ?? 0) + Number(model.stepInfo(at).scheduled !== null));
    return counts[step - from];
  };
}
