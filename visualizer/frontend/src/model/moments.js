/**
 * The moments of a run: steps in which something happens that is worth a look, each with the most telling thing.
 *
 * @typedef {"preempted" | "failed" | "evicted" | "aborted" | "forked" | "copied" | "hit" | "finished" | "missing"} MomentKind
 */

import { HAPPENED } from "./happenings.js";

/** The kinds from the most telling to the least, with their names. @type {[MomentKind, string][]} */
const KINDS = [
  ["missing", "missing messages"],
  ["preempted", "preemption"],
  ["failed", "error"],
  ["evicted", "eviction"],
  ["aborted", "abort"],
  ["forked", "fork"],
  ["copied", "copy on write"],
  ["hit", "cache hit"],
  ["finished", "finish"],
];
const WORDS = Object.fromEntries(KINDS);
/** Finishes are common: they are moments only in a run without any other. */
const COMMON = HAPPENED.finished;
const MARKED = KINDS.reduce((bits, [kind]) => bits | HAPPENED[kind], 0);

/** The most telling kind among the bits of a step, or null. @param {number} bits @returns {MomentKind | null} */
export function momentKind(bits) {
  return KINDS.find(([kind]) => bits & HAPPENED[kind])?.[0] ?? null;
}

/** All kinds of a step in words: "preemption, finish". @param {number} bits */
export function happenedWords(bits) {
  return KINDS.filter(([kind]) => bits & HAPPENED[kind])
    .map(([, words]) => words)
    .join(", ");
}

/** @type {WeakMap<import("./model.js").Model, {events: number, steps: number[]}>} */
const known = new WeakMap();

/** The steps that are moments, ascending. @param {import("./model.js").Model} model */
export function momentSteps(model) {
  const kept = known.get(model);
  if (kept?.events === model.events.length) return kept.steps;
  const { happened } = model.measures;
  const telling = MARKED & ~COMMON;
  const wanted = happened.some((bits) => bits & telling) ? telling : COMMON;
  const steps = [];
  for (let index = 0; index < happened.length; index++)
    if (happened[index] & wanted) steps.push(model.firstStep + index);
  known.set(model, { events: model.events.length, steps });
  return steps;
}

/**
 * A step among the moments: how many there are, the number of this one (null if it is none), and the moments before
 * and after it.
 *
 * @param {import("./model.js").Model} model
 * @param {number} step
 */
export function momentsAround(model, step) {
  const steps = momentSteps(model);
  let at = 0;
  for (let high = steps.length; at < high; ) {
    const middle = (at + high) >> 1;
    if (steps[middle] < step) at = middle + 1;
    else high = middle;
  }
  const isOne = steps[at] === step;
  const moment = (/** @type {number | undefined} */ other) => {
    if (other === undefined) return null;
    const kind = momentKind(model.measures.happened[other - model.firstStep]);
    return { step: other, kind, words: kind ? WORDS[kind] : "" };
  };
  return {
    count: steps.length,
    number: isOne ? at + 1 : null,
    previous: moment(steps[at - 1]),
    here: isOne ? moment(step) : null,
    next: moment(steps[isOne ? at + 1 : at]),
  };
}
