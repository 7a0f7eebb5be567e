/** The five scenes: their titles, the step that each shows, and what it says. */

import { holdStep, longReading, sentAway } from "./facts.ts";
import type { Run } from "./run.ts";
import { inPieces, memoryIsFull, perStep, sameBeginning, type Told } from "./sentences.ts";

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

/** @param engine the time in which the engine was starting, in microseconds */
export function told(run: Run, scene: number, now: number, engine: number): Told {
  if (scene === 2) return inPieces(run, now);
  if (scene === 3) return sameBeginning(run, now);
  if (scene === 4) return memoryIsFull(run);
  return perStep(run, now, engine);
}
