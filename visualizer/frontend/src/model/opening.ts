/**
 * The step at which a board opens, and the request it selects: the step with the highest score. In a run where
 * nothing happens and no request waits, it is the last of the fullest steps, because answers are longest there.
 * `visualizer/reading/opening.py` chooses the same in Python, because a board has a step before a browser shows it.
 */

import { HAPPENED } from "./happenings.ts";
import type { Model } from "./model.ts";

/**
 * Events of a log that are searched for the opening step, so that a long log is drawn before it is read. A reader who has
 * not moved by the time it is read is taken to the best step of all.
 */
export const SEARCHED = 50_000;

/** What a step's happenings are worth, in quarters of a point. */
const WORTH = [
  { bits: HAPPENED.preempted, quarters: 24 },
  { bits: HAPPENED.others, quarters: 12 },
  { bits: HAPPENED.cached, quarters: 12 },
  { bits: HAPPENED.taken, quarters: 12 },
  { bits: HAPPENED.copied | HAPPENED.forked | HAPPENED.rejected, quarters: 12 },
  { bits: HAPPENED.largeHit, quarters: 8 },
  { bits: HAPPENED.evicted, quarters: 4 },
];
const TELLING = WORTH.reduce((all, { bits }) => all | bits, 0);
const WAITING = { quarters: 4, most: 5 };
const RUNNING = { quarters: 1, most: 8 };
const EDGE = 16; // less in the first and last tenth of the run

/** How many steps are searched, those of the first `searched` events, and the score of each, in quarters of a point. */
function scorer(model: Model, searched: number) {
  const { happened, waiting, running } = model.measures;
  const isLonger = model.events.length > searched;
  const beyond = isLonger ? model.stepOf(model.firstSeq + searched) : model.lastStep + 1;
  const count = Math.max(Number(isLonger), beyond - model.firstStep);
  const tenth = Math.floor(count / 10);
  const scoreOf = (index: number) => {
    const isEdge = index < tenth || index >= count - tenth;
    let score =
      WAITING.quarters * Math.min(waiting.at(index), WAITING.most) +
      RUNNING.quarters * Math.min(running.at(index), RUNNING.most) -
      (isEdge ? EDGE : 0);
    const bits = happened.at(index);
    for (const one of WORTH) if (bits & one.bits) score += one.quarters;
    return score;
  };
  return { count, scoreOf };
}

/** The score of each step that is searched. */
export function openingScores(model: Model, searched = SEARCHED) {
  const { count, scoreOf } = scorer(model, searched);
  return Array.from({ length: count }, (_, index) => scoreOf(index));
}

/**
 * Returns the step with the highest score. If several have it, this is the earliest in which something happens or
 * a request waits, or else the last.
 */
export function openingStep(model: Model, searched = model.knowsAll ? Infinity : SEARCHED) {
  const { happened, waiting } = model.measures;
  const { count, scoreOf } = scorer(model, searched);
  const isDull = (index: number) => !(happened.at(index) & TELLING) && !waiting.at(index);
  let [best, most] = [0, -Infinity];
  for (let index = 0; index < count; index++) {
    const score = scoreOf(index);
    if (score > most || (score === most && isDull(best))) [best, most] = [index, score];
  }
  return model.firstStep + best;
}

/** The request that a step, the opening step, is about. */
export function openingRequest(model: Model, step: number = openingStep(model)): number | null {
  if (!model.stepCount) return null;
  const { story, running, waiting } = model.frame(step);
  const { preemptions, copies, forks, rows, gains, admissions, evictions } = story;
  const rejected = rows.find(({ request, drafts }) => {
    const gain = drafts.length && gains.find((one) => one.request === request);
    return gain && gain.accepted < drafts.length;
  });
  const told = [
    preemptions[0],
    copies[0],
    forks[0],
    rejected,
    admissions.find(({ found }) => found),
    evictions
      .map(({ neededBy }) => ({ request: neededBy }))
      .find(({ request }) => model.request(request)),
    rows[0],
  ].find(Boolean);
  return told?.request ?? running[0] ?? waiting[0] ?? null;
}
