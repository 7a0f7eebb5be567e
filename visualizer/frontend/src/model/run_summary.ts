/**
 * The figures of a whole run: latencies, goodput, preemptions, cache hits, and what requests waited for. `visualizer/
 * summary.py` has the same in Python. Times in microseconds.
 */

import type { Numbers } from "./columns.ts";
import { lacks } from "./knowledge.ts";
import type { MeasureColumns } from "./measures.ts";
import type { Model } from "./model.ts";
import type { RequestSpan } from "./request_spans.ts";
import { busyTime } from "./step_times.ts";
import type { RequestTime } from "./waterfall.ts";

/**
 * limits: the time to the first token, and the 99th percentile of a
 *   request's times between tokens
 */
export type Slo = { ttft: number; itl: number };

export type Percentile = { name: string; value: number };

export interface Summary {
  steps: number;
  duration: number; // from the first step to the last; NaN if the log has no times
  busy: number; // of it, the time in which steps ran
  requests: number;
  ends: Record<string, number>; // requests by the reason of their end; "unfinished" are the others
  ttft: Percentile[];
  itl: Percentile[];
  good: number; // finished requests within the SLO
  preemptions: number;
  drafted: number; // drafts that were computed
  accepted: number; // those of them that became output
  gained: number; // tokens that a row with drafts gained, on average
  found: number; // prompt tokens in the cache at the first admission
  asked: number; // all prompt tokens of these requests
  fetched: Record<"host" | "disk", number>; // tokens from the tiers below the GPU
  waits: { cause: string; amount: number }[]; // most first: time that requests waited
  waited: number; // their sum
  waitUnit: "us" | "steps"; // steps, if the log has no times
}

interface Times {
  ttft: number;
  longest: number;
  itl?: number;
}

/** The shares, and how many values each needs to mean something. */
const PERCENTILES = [
  { name: "p50", share: 0.5, least: 1 },
  { name: "p95", share: 0.95, least: 20 },
  { name: "p99", share: 0.99, least: 100 },
];

/** Collects the figures of a model that grows; `of(slo)` counts only what is new. */
export class RunSummary {
  /** Times between tokens, with how often each occurs. */
  #gaps: Map<number, number> = new Map();
  /** Maps a request that has not ended to the number of its counted tokens and to the longest time between them. */
  #open: Map<number, { counted: number; longest: number }> = new Map();
  /** Maps a finished request to its times; `itl` is computed where the longest time is beyond the limit. */
  #ended: Map<number, Times> = new Map();
  model: Model;

  constructor(model: Model) {
    this.model = model;
  }

  of(slo: Slo): Summary {
    const { model } = this;
    const { measures, stepCount, requests } = model;
    const ends: Record<string, number> = {};
    const ttfts: Map<number, number> = new Map();
    let [good, found, asked] = [0, 0, 0];
    // Most tokens follow a token of the step before: their times are counted by step. An index knows them.
    const inARow = new Int32Array(model.itl ? 0 : stepCount);
    const stepGaps = Float64Array.from(inARow, (_, index) =>
      unpaused(model, measures.end.at(index - 1), measures.end.at(index)),
    );
    for (const span of requests) {
      const end = span.finished?.reason ?? "unfinished";
      ends[end] = (ends[end] ?? 0) + 1;
      const ttft = model.itl ? span.ttft : this.#count(span, stepGaps, inARow);
      if (ttft !== null) ttfts.set(ttft, (ttfts.get(ttft) ?? 0) + 1);
      const { admitted } = span;
      if (span.root === span.id && admitted?.step) {
        found += Math.min(admitted.found, span.promptLength);
        asked += span.promptLength;
      }
      const times = model.itl ? timesIn(span) : this.#ended.get(span.id);
      if (!times || times.ttft > slo.ttft) continue;
      if (times.longest > slo.itl) times.itl ??= slowestGap(gapsOf(model, span.tokenSteps));
      if ((times.itl ?? times.longest) <= slo.itl) good++;
    }
    for (const [index, count] of inARow.entries()) if (count) this.#add(stepGaps[index], count);
    const { waits, waitUnit } = this.#waits();
    const [drafted, accepted, guessing] = [
      measures.drafted,
      measures.accepted,
      measures.guessing,
    ].map(total);
    return {
      steps: stepCount,
      duration: runTime(measures),
      busy: busyTime(this.model),
      requests: requests.length,
      ends,
      ttft: percentiles(ttfts),
      itl: model.itl?.map(([name, value]) => ({ name, value })) ?? percentiles(this.#gaps),
      good,
      preemptions: total(measures.preempted),
      drafted,
      accepted,
      gained: 1 + accepted / guessing,
      found,
      asked,
      fetched: { host: total(measures.host), disk: total(measures.disk) },
      waits,
      waited: waits.reduce((sum, { amount }) => sum + amount, 0),
      waitUnit,
    };
  }

  /**
   * Counts a request's new tokens. Returns the time to its first token, or null if it is not known.
   *
   * @param stepGaps the time from the end of the step before, by step
   * @param inARow counts tokens that follow one of the step before, by step
   */
  #count(span: RequestSpan, stepGaps: Float64Array, inARow: Int32Array) {
    const { finished, id, arrivedAt } = span;
    const known = this.#ended.get(id);
    if (known) return known.ttft;
    const { tokenSteps } = span;
    const { firstStep } = this.model;
    let { counted, longest } = this.#open.get(id) ?? { counted: 0, longest: 0 };
    for (let at = Math.max(1, counted); at < tokenSteps.length; at++) {
      const index = tokenSteps[at] - firstStep;
      const isNext = tokenSteps[at] - tokenSteps[at - 1] === 1;
      const gap = isNext ? stepGaps[index] : gapOf(this.model, tokenSteps, at);
      if (Number.isNaN(gap)) continue;
      if (gap > longest) longest = gap;
      if (isNext) inARow[index]++;
      else this.#add(gap, 1);
    }
    const isKnown = tokenSteps.length && arrivedAt !== null;
    const first = endOf(this.model, tokenSteps[0]);
    const ttft = isKnown ? unpaused(this.model, arrivedAt, first) : NaN;
    if (isWhole(finished) && !Number.isNaN(ttft)) {
      this.#ended.set(id, { ttft, longest });
      this.#open.delete(id);
    } else this.#open.set(id, { counted: tokenSteps.length, longest });
    return Number.isNaN(ttft) ? null : ttft;
  }

  #add(gap: number, count: number) {
    this.#gaps.set(gap, (this.#gaps.get(gap) ?? 0) + count);
  }

  /** How long requests waited, for each cause of waiting. */
  #waits() {
    const { model } = this;
    const { measures, firstStep, stepCount } = model;
    const { waiting, suspended, start, end } = measures;
    const isUnknown = lacks(model, "waiting_reasons");
    const isTimed = !Number.isNaN(runTime(measures));
    const sums: Map<string, number> = new Map();
    const add = (cause: string, amount: number) =>
      amount && sums.set(cause, (sums.get(cause) ?? 0) + amount);
    for (let index = 0; index < stepCount; index++) {
      if (!waiting.at(index)) continue;
      const length = isTimed ? end.at(index) - start.at(index) : 1;
      if (Number.isNaN(length)) continue;
      const { reason, deferred } = model.waitIn(firstStep + index);
      add("preempted", suspended.at(index) * length);
      const others = waiting.at(index) - suspended.at(index);
      const slotless = Math.min(deferred.adapter_slot, others);
      const putOff = Math.min(deferred.policy, others - slotless);
      add("policy", putOff * length);
      add("adapter_slot", slotless * length);
      if (reason || isUnknown) add(reason ?? "unknown", (others - putOff - slotless) * length);
    }
    const waits = [...sums].map(([cause, amount]) => ({ cause, amount }));
    waits.sort((a, b) => b.amount - a.amount);
    return { waits, waitUnit: (isTimed ? "us" : "steps") as "us" | "steps" };
  }
}

const isWhole = (end: RequestSpan["finished"]) => end && ["stop", "length"].includes(end.reason);

/** What an index knows of a request that has ended. */
const timesIn = ({ finished, ttft, slowest }: RequestSpan): Times | null | false =>
  ttft !== null &&
  isWhole(finished) && { ttft, longest: slowest as number, itl: slowest as number };

const endOf = ({ measures, firstStep }: Model, step: number) => measures.end.at(step - firstStep);

/** A paused engine is not a slow one. */
const unpaused = ({ paused }: Model, begin: number, end: number) =>
  end - begin - paused.between(begin, end);

/** The time before a token of a request, which is not its first. */
const gapOf = (model: Model, tokenSteps: number[], at: number) =>
  unpaused(model, endOf(model, tokenSteps[at - 1]), endOf(model, tokenSteps[at]));

/** The times before a request's tokens, from its second token on. */
const gapsOf = (model: Model, tokenSteps: number[]) =>
  tokenSteps
    .slice(1)
    .map((_, i) => gapOf(model, tokenSteps, i + 1))
    .filter((gap) => !Number.isNaN(gap));

/** The 99th percentile of the times between tokens; 0 without any. */
function slowestGap(gaps: number[]) {
  const sorted = Float64Array.from(gaps).sort();
  return gaps.length ? quantile(0.99, gaps.length, (rank) => sorted[rank]) : 0;
}

/** Which limits a request broke so far. */
export function lateness(model: Model, { request, ttft }: RequestTime, slo: Slo) {
  if (model.waterfall.unit !== "us") return { first: false, gaps: false };
  const slowest = request.slowest ?? slowestGap(gapsOf(model, request.tokenSteps));
  const gaps = slowest > slo.itl;
  return { first: ttft !== null && ttft > slo.ttft, gaps };
}

/** The time from the start of the first step to the end of the last one that has times. */
function runTime({ start, end }: MeasureColumns) {
  let [first, last] = [0, end.length - 1];
  while (first < last && Number.isNaN(start.at(first))) first++;
  while (last > 0 && Number.isNaN(end.at(last))) last--;
  return end.at(last) - start.at(first);
}

/**
 * The percentiles that this number of values supports, and the maximum.
 *
 * @param counts by value, how often it occurs
 */
export function percentiles(counts: Map<number, number>): Percentile[] {
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const known = PERCENTILES.filter(({ least }) => total >= least);
  if (!known.length) return [];
  const values = quantiles(counts, known.map(({ share }) => share).concat(1));
  return [...known.map(({ name }) => name), "max"].map((name, i) => ({ name, value: values[i] }));
}

/**
 * Quantiles.
 *
 * @param counts by value, how often it occurs; not empty
 * @param shares ascending
 */
function quantiles(counts: Map<number, number>, shares: number[]) {
  const values = Float64Array.from(counts.keys()).sort();
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  let [at, before] = [0, 0]; // `before` values come before values[at]
  const valueAt = (rank: number) => {
    if (rank < before) at = before = 0;
    for (;;) {
      const count = counts.get(values[at]) as number;
      if (before + count > rank) return values[at];
      before += count;
      at++;
    }
  };
  return shares.map((share) => quantile(share, total, valueAt));
}

/** A quantile with linear interpolation, as in pandas. */
function quantile(share: number, total: number, valueAt: (rank: number) => number) {
  const place = share * (total - 1);
  const rank = Math.floor(place);
  const low = valueAt(rank);
  return rank === place ? low : low + (place - rank) * (valueAt(rank + 1) - low);
}

function total(counts: Numbers) {
  let sum = 0;
  for (let index = 0; index < counts.length; index++) sum += counts.at(index);
  return sum;
}
