/** Where the visitor's time went: parts of wall time that add up, each with the scene that explains it. */

import { count } from "../model/words.ts";
import { waitOf } from "./facts.ts";
import { NAMES, type Run } from "./run.ts";

export interface Part {
  kind: "start" | "wait" | "read" | "write" | "away" | "reread";
  ms: number; // whole; they add up to `totalMs`
  words: string;
  scene: number; // that explains it; 0: none
  step: number; // to look at
}

/** @param start the time in which the engine was starting, in microseconds */
export function partsOf(run: Run, start = 0): Part[] {
  const you = run.you;
  if (!you) return [];
  const times: { kind: Part["kind"]; us: number; from: number; to: number }[] = [];
  if (start) times.push({ kind: "start", us: start, from: 1, to: 1 });
  for (const span of run.model.waterfall.of(you.id).spans) {
    const cell = run.cell(you, span.step);
    const hasStarted = (you.admitted?.step ?? Infinity) <= span.step;
    const kind = !cell
      ? hasStarted
        ? "away"
        : "wait"
      : !cell.reads
        ? "write"
        : cell.isAgain
          ? "reread"
          : "read";
    const last = times.at(-1);
    if (last?.kind === kind)
      Object.assign(last, { us: last.us + span.end - span.start, to: span.step });
    else times.push({ kind, us: span.end - span.start, from: span.step, to: span.step });
  }
  const ms = rounded(times.map(({ us }) => us / 1000));
  return times.map(({ kind, from, to }, index) => {
    const tokens = you.tokenSteps.filter((step) => from <= step && step <= to).length;
    const words = {
      start: "the engine was starting",
      wait: behind(run, from),
      read: "your question was read",
      write: `${count(tokens, "token")}, one per step`,
      away: "sent away: memory was full",
      reread: "read again",
    }[kind];
    const scene = { start: 0, wait: 2, read: 3, write: 1, away: 4, reread: 4 }[kind];
    return { kind, ms: ms[index], words, scene, step: from };
  });
}

function behind(run: Run, step: number) {
  const you = run.you;
  const reader = you && waitOf(run, you, run.lastStep)?.reader;
  return reader && step ? `behind ${NAMES[run.placeOf(reader.id)]}` : "in the queue";
}

export const totalMs = (parts: Part[]) => parts.reduce((sum, { ms }) => sum + ms, 0);

/** Whole numbers whose sum is the rounded sum of the values. */
export function rounded(values: number[]) {
  const sum = Math.round(values.reduce((total, value) => total + value, 0));
  const whole = values.map(Math.floor);
  const missing = sum - whole.reduce((total, value) => total + value, 0);
  const order = values.map((_, index) => index).sort((a, b) => (values[b] % 1) - (values[a] % 1));
  for (const index of order.slice(0, missing)) whole[index]++;
  return whole;
}
