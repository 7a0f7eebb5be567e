/** The five scenes: their titles, the step that each shows, and what it says. */

import { holdStep, longReading, sentAway } from "./facts.ts";
import { PACE, type Run } from "./run.ts";
import {
  inPieces,
  isSlower,
  memoryIsFull,
  perStep,
  sameBeginning,
  type Told,
} from "./sentences.ts";

/** Short names, for the way through the story. */
export const TITLES = [
  "One token each per step",
  "One long question",
  "The same beginning",
  "Memory is full",
  "Where your time went",
];

/** The step that a scene shows; without its event, that of the first scene. */
export function stepOf(run: Run, scene: number) {
  const hold = holdStep(run);
  if (scene === 2) return longReading(run, run.lastStep)?.steps.at(-1) ?? hold;
  if (scene === 3) return run.you?.admissions[0]?.step ?? hold;
  if (scene === 4) return sentAway(run)?.step ?? hold;
  return hold;
}

/** What a scene is called in this run; null: as it is on the page. */
export function heading(run: Run, scene: number) {
  if (scene === 2) {
    const { slow = 0, usual = 0 } = longReading(run, run.lastStep) ?? {};
    return isSlower(slow, usual)
      ? "One long question, and everyone stutters"
      : "One long question is read in pieces";
  }
  if (scene === 3)
    return run.you?.admitted?.found
      ? "The same beginning is not computed twice"
      : "Nothing was in memory yet";
  if (scene === 4)
    return sentAway(run) ? "Memory is full, and someone has to go" : "Memory was large enough";
  return null;
}

/**
 * @param engine the time in which the engine was starting, in microseconds
 * @param pace the time of a column, in ms; 0: columns appear as they are computed
 */
export function told(run: Run, scene: number, now: number, engine = 0, pace = PACE): Told {
  if (scene === 2) return inPieces(run, now);
  if (scene === 3) return sameBeginning(run, now);
  if (scene === 4) return memoryIsFull(run);
  return perStep(run, now, engine, pace);
}
