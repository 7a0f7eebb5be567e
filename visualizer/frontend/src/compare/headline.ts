/** The comparison in two sentences, as spans of words. Pure functions. */

import type { Axis } from "../drawing/time_axis.ts";
import { duration } from "../model/duration.ts";
import type { Facts } from "./compare.ts";
import { doubtOf, gapSize } from "./ghost_rows.ts";

const HELD = "paused or idle, ms"; // as in `run_totals.py`
const US_PER_MS = 1000;

/** jump: a step to go to */
type Part = { text?: string; bold?: boolean; request?: number; jump?: number };

/**
 * The headline: what was changed, until when both runs decide alike, and how the other one ends. `ends` are the
 * places of the last step's end on the axis `kind`.
 */
export function headline(
  facts: Facts,
  { firstStep }: { firstStep: number },
  ends: number[],
  kind: Axis["kind"],
): Part[] {
  const { difference, verdict } = facts;
  const held = notCounted(facts, ends, kind);
  if (!difference) return [{ text: `${lead(facts)}${verdict}${held}` }];
  const { step, requests } = difference;
  const alike = step - firstStep;
  const together = alike
    ? `Both runs decide alike for ${alike} step${alike === 1 ? "" : "s"} and part at `
    : "The runs part at once, at ";
  const over = requests[0] == null ? [] : [{ text: ", over " }, { request: requests[0] }];
  return [
    { text: lead(facts), bold: true },
    { text: together },
    { text: `step ${step}`, jump: step },
    ...over,
    { text: `. From there ${outcome(facts, ends, kind)}.${held}` },
  ];
}

/** "token_budget 64 or 32? ", or the runs' own names. */
function lead({ names, settings }: Facts) {
  if (names.join() !== "A,B") return `${names[0]} or ${names[1]}? `;
  const [changed] = settings;
  return changed ? `${changed[0]} ${changed[1]} or ${changed[2]}? ` : "";
}

/** "B needs no preemption and is done 57 ms sooner". */
function outcome(
  { names, totals, end_noise: noise, study }: Facts,
  ends: number[],
  kind: Axis["kind"],
) {
  const [, before = 0, after = 0] = totals.find(([name]) => name === "preemptions") ?? [];
  const end = done(ends, noise, kind) + (study ? margin(ends, noise, kind) : "");
  const parts = [preempts(Number(before), Number(after)), end];
  return `${names[1]} ${parts.filter(Boolean).join(" and ")}`;
}

function preempts(before: number, after: number) {
  if (before === after) return null;
  if (after === 0) return "needs no preemption";
  const times = Math.abs(after - before);
  const how = after > before ? "more" : "fewer";
  return times === 1 ? `has one preemption ${how}` : `has ${times} ${how} preemptions`;
}

function done([a, b]: number[], noise: Facts["end_noise"], kind: Axis["kind"]) {
  const gap = b - a;
  if (!gap) return "is done at the same time";
  const words = `is done ${gapSize(gap, kind)} ${gap < 0 ? "sooner" : "later"}`;
  const doubt = doubtOf([a, b], noise, kind);
  return doubt ? `${words}, ${DOUBTS[doubt]}` : words;
}

const DOUBTS = {
  noise: "which is within the noise",
  unknown: "which may be noise, because it is unknown how much the times vary",
};

/** Time in which no step ran is worth a sentence if it is at least this share of the busy time. */
const LEAST_HELD = 0.01;

/** " Only busy time counts: 12.8 s paused or idle in A and 3 s in B do not." */
function notCounted({ names, totals }: Facts, ends: number[], kind: Axis["kind"]) {
  const [, ...held] = totals.find(([name]) => name === HELD) ?? [];
  const times = names.map((_, side) => Number(held[side] ?? 0) * US_PER_MS);
  if (kind === "steps" || !times.some((time, side) => time >= LEAST_HELD * ends[side])) return "";
  const [a, b] = times.map((time) => duration(time));
  return ` Only busy time counts: ${a} paused or idle in ${names[0]} and ${b} in ${names[1]} do not.`;
}

/** " (± 70 ms)": the error of a predicted end, if it has one. */
function margin(ends: number[], { share }: Facts["end_noise"], kind: Axis["kind"]) {
  if (kind !== "time" || share === 0) return "";
  return share == null ? " (± unknown)" : ` (± ${gapSize(share * Math.max(...ends), kind)})`;
}
