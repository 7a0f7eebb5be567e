/** The moments of a run: steps in which something happens that is worth a look, each with the most telling thing. */

import { firstWhere } from "./columns.ts";
import { HAPPENED } from "./happenings.ts";
import type { Model } from "./model.ts";

/** The kinds from the most telling to the least, with their names. */
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
] as const;
export type MomentKind = (typeof KINDS)[number][0];
const WORDS = Object.fromEntries(KINDS);
/** Finishes are common: they are moments only in a run without any other. */
const COMMON = HAPPENED.finished;
const MARKED = KINDS.reduce((bits, [kind]) => bits | HAPPENED[kind], 0);

/** The most telling kind among the bits of a step, or null. */
export function momentKind(bits: number): MomentKind | null {
  return KINDS.find(([kind]) => bits & HAPPENED[kind])?.[0] ?? null;
}

/** All kinds of a step in words: "preemption, finish". */
export function happenedWords(bits: number) {
  return KINDS.filter(([kind]) => bits & HAPPENED[kind])
    .map(([, words]) => words)
    .join(", ");
}

const known: WeakMap<Model, { events: number; steps: number[] }> = new WeakMap();

/** The steps that are moments, ascending. */
export function momentSteps(model: Model) {
  const kept = known.get(model);
  if (kept?.events === model.events.length) return kept.steps;
  const { happened } = model.measures;
  const stepsWith = (bits: number) => {
    const steps: number[] = [];
    for (let index = 0; index < happened.length; index++)
      if (happened.at(index) & bits) steps.push(model.firstStep + index);
    return steps;
  };
  const telling = stepsWith(MARKED & ~COMMON);
  const steps = telling.length ? telling : stepsWith(COMMON);
  known.set(model, { events: model.events.length, steps });
  return steps;
}

/**
 * A step among the moments: how many there are, the number of this one (null if it is none), and the moments before
 * and after it.
 */
export function momentsAround(model: Model, step: number) {
  const steps = momentSteps(model);
  const at = firstWhere(steps.length, (index) => steps[index] >= step);
  const isOne = steps[at] === step;
  const moment = (other: number | undefined) => {
    if (other === undefined) return null;
    const kind = momentKind(model.measures.happened.at(other - model.firstStep));
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
