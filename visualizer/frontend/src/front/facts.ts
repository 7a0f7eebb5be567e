/** What happened to the visitor's request, read from the log: the sentences and the picture use the same facts. */

import type { RequestSpan } from "../model/request_spans.ts";
import { NAMES, type Run, YOU } from "./run.ts";

/** The wait before the first token of a prompt is read. */
export interface Wait {
  us: number; // NaN without times
  cause: string; // the cause of most of it, or "" if there was no step to wait for
  reader: RequestSpan | null; // the request that read most in that time
  from: number; // the first step
  to: number; // the last
}

/** A preemption, and what became of the blocks. */
export interface SentAway {
  step: number;
  request: RequestSpan;
  by: RequestSpan | null; // the request that needed a block
  blocks: { id: number; fate: string; to: number | null }[];
  again: number; // tokens that it computed again later
  back: number | null; // the step in which it was admitted again
}

/** How a long prompt was read, and how long the steps took. */
export interface Reading {
  request: RequestSpan;
  steps: number[];
  tokens: number;
  found: number; // tokens that were in memory already
  slow: number; // the median of these steps' durations, in microseconds
  usual: number; // the median of the steps in which all only wrote
}

/** How long the visitor's request waits, up to a step. */
export function waitOf(run: Run, you: RequestSpan, now: number): Wait | null {
  const from = Number(you.arrived);
  if (run.cell(you, from)) return null;
  let to = from;
  while (to < now && !run.cell(you, to + 1)) to++;
  const read: Map<RequestSpan, number> = new Map();
  for (let step = from; step <= to; step++)
    for (const other of run.model.requests) {
      const reads = run.cell(other, step)?.reads ?? 0;
      if (reads) read.set(other, (read.get(other) ?? 0) + reads);
    }
  const [reader = null] = [...read.keys()].sort(
    (a, b) => Number(read.get(b)) - Number(read.get(a)),
  );
  const spans = run.model.waterfall.of(you.id).spans.filter(({ step }) => step <= to);
  const us = spans.reduce((sum, { start, end }) => sum + end - start, 0);
  const cause = run.model.waitAt(to, you.id).reason ?? "";
  return { us, cause, reader, from, to };
}

/** The longest reading of a prompt by others than the visitor while the visitor was there. */
export function longReading(run: Run, now: number): Reading | null {
  const { model } = run;
  const since = Number(run.you?.arrived ?? 1);
  let longest: Reading | null = null;
  for (const request of model.requests) {
    if (request === run.you || Number(request.arrived) < since) continue;
    const steps: number[] = [];
    for (let step = since; step <= now; step++) {
      const cell = run.cell(request, step);
      if (cell?.reads && !cell.isAgain) steps.push(step);
    }
    const tokens = steps.reduce((sum, step) => sum + (run.cell(request, step)?.reads ?? 0), 0);
    if (!steps.length || tokens <= (longest?.tokens ?? 0)) continue;
    const found = request.admitted?.found ?? 0;
    const slow = median(steps.map((step) => run.took(step)));
    const usual = median(writingSteps(run, now).map((step) => run.took(step)));
    longest = { request, steps, tokens, found, slow, usual };
  }
  return longest;
}

/** The steps up to `now` in which nothing was read. */
function writingSteps(run: Run, now: number) {
  return run.stepsTo(now).filter((step) => {
    const cells = run.model.requests.map((request) => run.cell(request, step));
    return cells.some((cell) => cell) && !cells.some((cell) => cell?.reads);
  });
}

/** The first preemption of the run, of the visitor's request if there is one. */
export function sentAway(run: Run): SentAway | null {
  const { model, you } = run;
  const all = model.requests.filter((one) => one.preemptions.length);
  const first = (one: RequestSpan) => one.preemptions[0].step;
  const earliest = all.sort((a, b) => first(a) - first(b))[0];
  const request = you?.preemptions.length ? you : earliest;
  if (!request) return null;
  const { step, resume } = request.preemptions[0];
  const frame = model.frame(step);
  const loss = frame.story.preemptions.find((one) => one.request === request.id);
  if (!loss) return null;
  const blocks = loss.table.map((id) => ({ id, ...frame.fate(id, loss.seq) }));
  const cells: number[] = [];
  for (let at = resume ?? Infinity; at <= run.lastStep; at++) {
    const cell = run.cell(request, at);
    if (!cell?.isAgain) break;
    cells.push(cell.reads);
  }
  const again = cells.reduce((sum, reads) => sum + reads, 0);
  return { step, request, by: model.request(loss.by) ?? null, blocks, again, back: resume };
}

/** The people whose requests hold the blocks that the visitor's prompt found in memory. */
export function sharers(run: Run, step: number) {
  const you = run.you;
  const admission = you?.admissions[0];
  if (!you || !admission?.found) return null;
  const blocks = run.model
    .frame(admission.step)
    .story.admissions.find(({ request }) => request === you.id)?.blocks;
  const owners = new Set(
    run.model
      .frame(step)
      .blocks.filter(({ id }) => blocks?.includes(id))
      .flatMap(({ owners }) => owners),
  );
  const others = [...owners].filter((id) => id !== you.id).map((id) => run.model.requestSpan(id));
  return { blocks: blocks ?? [], found: admission.found, others };
}

/** The last step before anybody loses memory in which the visitor's request writes; the opening of the story. */
export function holdStep(run: Run) {
  const you = run.you;
  if (!you) return run.lastStep;
  const lost = Math.min(
    ...run.model.requests.flatMap(({ preemptions }) => preemptions.map(({ step }) => step)),
  );
  const steps = you.tokenSteps.filter((step) => step < lost);
  const most = steps[Math.min(HOLD_TOKENS, steps.length) - 1];
  return most ?? you.tokenSteps[0] ?? run.lastStep;
}

/** Whether the step of `holdStep` is known already. */
export const isHoldKnown = ({ isOver, you, model }: Run) =>
  isOver ||
  Number(you?.tokenSteps.length) >= HOLD_TOKENS ||
  model.requests.some(({ preemptions }) => preemptions.length);

const HOLD_TOKENS = 5; // of the visitor's answer, before the story stops for the first time

export const isVisitor = (request: RequestSpan | null) => request?.label === NAMES[YOU];

export function median(values: number[]) {
  const sorted = values.filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
  return sorted.length ? sorted[(sorted.length - 1) >> 1] : NaN;
}
