/**
 * The figures of a whole run: latencies, goodput, preemptions, cache hits, and what requests waited for. `visualizer/
 * summary.py` has the same in Python. Times in microseconds.
 *
 * @typedef {{ttft: number, itl: number}} Slo  limits: the time to the first token, and the 99th percentile of a
 *   request's times between tokens
 * @typedef {{name: string, value: number}} Percentile
 * @typedef {object} Summary
 * @property {number} steps
 * @property {number} duration  from the first step to the last; NaN if the log has no times
 * @property {number} requests
 * @property {Record<string, number>} ends    requests by the reason of their end; "unfinished" are the others
 * @property {Percentile[]} ttft
 * @property {Percentile[]} itl
 * @property {number} good       finished requests within the SLO
 * @property {number} preemptions
 * @property {number} drafted    drafts that were computed
 * @property {number} accepted   those of them that became output
 * @property {number} gained     tokens that a row with drafts gained, on average
 * @property {number} found      prompt tokens in the cache at the first admission
 * @property {number} asked      all prompt tokens of these requests
 * @property {{cause: string, amount: number}[]} waits  most first: time that requests waited
 * @property {number} waited     their sum
 * @property {"us" | "steps"} waitUnit  steps, if the log has no times
 */

import { lacks } from "./knowledge.js";

/** The shares, and how many values each needs to mean something. */
const PERCENTILES = [
  { name: "p50", share: 0.5, least: 1 },
  { name: "p95", share: 0.95, least: 20 },
  { name: "p99", share: 0.99, least: 100 },
];

/** Collects the figures of a model that grows; `of(slo)` counts only what is new. */
export class RunSummary {
  /** Times between tokens, with how often each occurs. @type {Map<number, number>} */
  #gaps = new Map();
  /** Maps a request to its counted tokens and the gaps between them. @type {Map<number, {counted: number, gaps: number[]}>} */
  #tokens = new Map();
  /** Maps a finished request to its slowest times. @type {Map<number, {ttft: number, itl: number}>} */
  #ended = new Map();

  /** @param {import("./model.js").Model} model */
  constructor(model) {
    this.model = model;
  }

  /** @param {Slo} slo @returns {Summary} */
  of(slo) {
    const { model } = this;
    const { measures, stepCount, requests } = model;
    /** @type {Record<string, number>} */
    const ends = {};
    /** @type {Map<number, number>} */
    const ttfts = new Map();
    let [good, found, asked] = [0, 0, 0];
    for (const span of requests) {
      const end = span.finished?.reason ?? "unfinished";
      ends[end] = (ends[end] ?? 0) + 1;
      const ttft = this.#count(span);
      if (ttft !== null) ttfts.set(ttft, (ttfts.get(ttft) ?? 0) + 1);
      const [admission] = span.admissions;
      if (span.sample === 0 && admission && !admission.resumed) {
        found += admission.found;
        asked += span.promptLength;
      }
      const slowest = this.#ended.get(span.id);
      if (slowest && slowest.ttft <= slo.ttft && slowest.itl <= slo.itl) good++;
    }
    const { waits, waitUnit } = this.#waits();
    const [drafted, accepted, guessing] = [
      measures.drafted,
      measures.accepted,
      measures.guessing,
    ].map(total);
    return {
      steps: stepCount,
      duration: runTime(measures),
      requests: requests.length,
      ends,
      ttft: percentiles(ttfts),
      itl: percentiles(this.#gaps),
      good,
      preemptions: total(measures.preempted),
      drafted,
      accepted,
      gained: 1 + accepted / guessing,
      found,
      asked,
      waits,
      waited: waits.reduce((sum, { amount }) => sum + amount, 0),
      waitUnit,
    };
  }

  /**
   * Counts a request's new tokens. Returns the time to its first token, or null if it is not known.
   *
   * @param {import("./request_spans.js").RequestSpan} span
   */
  #count(span) {
    const { measures, firstStep } = this.model;
    const { tokenSteps, finished, id } = span;
    const own = this.#tokens.get(id) ?? { counted: 0, gaps: [] };
    const endOf = (/** @type {number} */ index) =>
      measures.end[tokenSteps[index] - firstStep] ?? NaN;
    // A paused engine is not a slow one.
    const unpaused = (/** @type {number} */ begin, /** @type {number} */ end) =>
      end - begin - this.model.paused.between(begin, end);
    for (let index = Math.max(1, own.counted); index < tokenSteps.length; index++) {
      const gap = unpaused(endOf(index - 1), endOf(index));
      if (Number.isNaN(gap)) continue;
      own.gaps.push(gap);
      this.#gaps.set(gap, (this.#gaps.get(gap) ?? 0) + 1);
    }
    own.counted = tokenSteps.length;
    this.#tokens.set(id, own);
    const isKnown = tokenSteps.length && span.arrivedAt !== null;
    const ttft = isKnown ? unpaused(span.arrivedAt ?? NaN, endOf(0)) : NaN;
    const isGone = finished && ["stop", "length"].includes(finished.reason);
    if (isGone && !this.#ended.has(id) && !Number.isNaN(ttft)) {
      const gaps = new Map();
      for (const gap of own.gaps) gaps.set(gap, (gaps.get(gap) ?? 0) + 1);
      this.#ended.set(id, { ttft, itl: gaps.size ? quantiles(gaps, [0.99])[0] : 0 });
      own.gaps = [];
    }
    return Number.isNaN(ttft) ? null : ttft;
  }

  /** How long requests waited, for each cause of waiting. */
  #waits() {
    const { model } = this;
    const { measures, firstStep, stepCount } = model;
    const { waiting, suspended, start, end } = measures;
    const isUnknown = lacks(model, "waiting_reasons");
    const isTimed = !Number.isNaN(runTime(measures));
    /** @type {Map<string, number>} */
    const sums = new Map();
    const add = (/** @type {string} */ cause, /** @type {number} */ amount) =>
      amount && sums.set(cause, (sums.get(cause) ?? 0) + amount);
    for (let index = 0; index < stepCount; index++) {
      if (!waiting[index]) continue;
      const length = isTimed ? end[index] - start[index] : 1;
      if (Number.isNaN(length)) continue;
      const { reason, deferred } = model.waitIn(firstStep + index);
      add("preempted", suspended[index] * length);
      const others = waiting[index] - suspended[index];
      const putOff = Math.min(deferred, others);
      add("policy", putOff * length);
      if (reason || isUnknown) add(reason ?? "unknown", (others - putOff) * length);
    }
    const waits = [...sums].map(([cause, amount]) => ({ cause, amount }));
    waits.sort((a, b) => b.amount - a.amount);
    return { waits, waitUnit: /** @type {"us" | "steps"} */ (isTimed ? "us" : "steps") };
  }
}

/** The time from the start of the first step to the end of the last one that has times. */
function runTime(/** @type {import("./measures.js").MeasureArrays} */ { start, end }) {
  const first = start.find((time) => !Number.isNaN(time)) ?? NaN;
  return (end.findLast((time) => !Number.isNaN(time)) ?? NaN) - first;
}

/**
 * The percentiles that this number of values supports, and the maximum.
 *
 * @param {Map<number, number>} counts  by value, how often it occurs
 * @returns {Percentile[]}
 */
export function percentiles(counts) {
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const known = PERCENTILES.filter(({ least }) => total >= least);
  if (!known.length) return [];
  const values = quantiles(counts, known.map(({ share }) => share).concat(1));
  return [...known.map(({ name }) => name), "max"].map((name, i) => ({ name, value: values[i] }));
}

/**
 * Quantiles with linear interpolation, as in pandas.
 *
 * @param {Map<number, number>} counts  by value, how often it occurs; not empty
 * @param {number[]} shares             ascending
 */
export function quantiles(counts, shares) {
  const values = Float64Array.from(counts.keys()).sort();
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  let [at, before] = [0, 0]; // `before` values come before values[at]
  const valueAt = (/** @type {number} */ rank) => {
    if (rank < before) at = before = 0;
    for (;;) {
      const count = /** @type {number} */ (counts.get(values[at]));
      if (before + count > rank) return values[at];
      before += count;
      at++;
    }
  };
  return shares.map((share) => {
    const place = share * (total - 1);
    const rank = Math.floor(place);
    const low = valueAt(rank);
    return rank === place ? low : low + (place - rank) * (valueAt(rank + 1) - low);
  });
}

/** @param {Int32Array} counts */
const total = (counts) => counts.reduce((sum, count) => sum + count, 0);
