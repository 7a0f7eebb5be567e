/**
 * What is stuck: the queue of a step, with the age and the blocker of each request. `visualizer/reading/why/stuck.py` answers the
 * same; a golden test compares them.
 *
 * @typedef {object} Waiting  a request that waits after a step was scheduled
 * @property {number} request
 * @property {number} steps           for which it has waited, this one included
 * @property {number | null} age      microseconds since its arrival; null if the log does not know
 * @property {boolean} isPreempted
 * @property {string | null} reason   why it was not admitted; null if the log does not say
 * @property {number | null} behind   the head of the queue, whose reason it is
 * @property {number | null} need     of the head, in the reason's unit
 * @property {number | null} have
 * @property {"recorded" | "inferred" | "unknown"} mark
 */

/** @import { Frame } from "./frame.js" */
/** @import { Model } from "./model.js" */
/** @import { Span } from "./words.js" */
import { duration } from "./duration.js";
import { fill, messages, reasons, reasonWords, text } from "./messages.js";
import { FOR_ALL } from "./waits.js";
import { causeLevel } from "./waterfall_words.js";

/** The queue after a step was scheduled, in its order. @param {Model} model @param {number} step @returns {Waiting[]} */
export function stuck(model, step) {
  const { scheduled } = model.stepInfo(step);
  if (scheduled === null) return [];
  const { skipped, blocked } = model.event(scheduled);
  /** @type {Set<number>} */
  const deferred = new Set();
  for (const [id, reason] of skipped) if (reason === "policy") deferred.add(id);
  const state = model.stateBefore(scheduled);
  const now = model.measures.scheduled[step - model.firstStep];
  const since = scheduledSince(model, step);
  return state.waiting().map((id) => {
    const [head, reason, , need, have] = deferred.has(id)
      ? [id, "policy"]
      : (blocked ?? [id, null]);
    const isOwn = head === id || FOR_ALL.has(reason);
    const hasNumbers = !!reasons[reason]?.numbers;
    const { root } = model.requestSpan(id);
    const arrived = model.request(root)?.arrivedAt ?? null;
    return {
      request: id,
      steps: since(beginOf(model, id, step)),
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

/** The blocker of the head of the queue, its age, and how many wait behind it; empty if no request waits.
 * @param {Frame} frame @param {Waiting[]} queue  of its step @returns {Span[]} */
export function stuckWords(frame, queue) {
  const { model } = frame;
  const head =
    queue.find(({ behind, reason }) => behind === null && reason !== "policy") ?? queue[0];
  if (!head) return [];
  const who = model.tag(head.request);
  const reason = head.reason === null ? messages.stuck.unknown : frame.reasonFor(head.reason);
  const behind = queue.filter((one) => one.behind === head.request).length;
  const rest = behind ? text(messages.stuck.rest, { behind }) : "";
  const { age, steps } = head;
  if (age === null) return fill(messages.stuck.head_steps, { who, steps, reason, rest });
  return fill(messages.stuck.head, { who, age: duration(age), reason, rest });
}

/** "behind Ada", "batch full". @param {Model} model @param {Waiting} waiting */
export function blockerWords(model, { behind, reason }) {
  if (behind !== null) return `behind ${model.tag(behind).text}`;
  return reason === null ? messages.stuck.unknown : reasonWords[reason];
}

/** The scheduled steps from one on up to `step`, as a function: thousands of requests may wait. @param {Model} model @param {number} step */
function scheduledSince(model, step) {
  /** @type {number[]} */
  const counts = []; // by distance
  return (/** @type {number} */ from) => {
    for (let at = step - counts.length; at >= from; at--)
      counts.push((counts.at(-1) ?? 0) + Number(model.stepInfo(at).scheduled !== null));
    return counts[step - from];
  };
}

/** The step in which a wait began. @param {Model} model @param {number} id @param {number} step  within it */
function beginOf(model, id, step) {
  const wait = model
    .requestSpan(id)
    .segments.find(
      ({ kind, from, to }) =>
        (kind === "waiting" || kind === "preempted") && from <= step && (to ?? Infinity) >= step,
    );
  return wait?.from ?? step;
}
