/** Sums over a range of steps. Pure functions. */

/** @import { CountName } from "../model/measures.js" */
/** @import { Model } from "../model/model.js" */
import { plural } from "../drawing/html.js";
import { duration } from "../model/duration.js";
import { lacks, missing } from "../model/knowledge.js";

const SUMS = /** @type {const} */ ([
  "tokens",
  "prefill",
  "decode",
  "catchup",
  "preempted",
  "evicted",
  "found",
]);

/**
 * Sums and means over the steps from `from` to `to`, inclusive. Times in microseconds, NaN if unknown.
 *
 * @param {Model} model @param {number} from @param {number} to
 */
export function aggregate(model, from, to) {
  const { measures, firstStep } = model;
  /** @param {CountName} name */
  const total = (name) => {
    let sum = 0;
    for (let i = from - firstStep; i <= to - firstStep; i += 1) sum += measures[name][i];
    return sum;
  };
  /** @param {number} step */
  const inside = (step) => step >= from && step <= to;
  let hits = 0;
  /** @type {number[]} */
  const ttfts = [];
  /** @type {number[]} */
  const gaps = [];
  let finished = 0;
  for (const span of model.requests) {
    hits += span.admissions.filter(({ step, found }) => found && inside(step)).length;
    if (!span.finished || !inside(span.finished.step)) continue;
    finished += 1;
    const times = span.tokenSteps.map((step) => measures.end[step - firstStep]);
    if (times.length && span.arrivedAt != null) ttfts.push(times[0] - span.arrivedAt);
    if (times.length > 1) gaps.push((times[times.length - 1] - times[0]) / (times.length - 1));
  }
  return {
    steps: to + 1 - from,
    .../** @type {Record<typeof SUMS[number], number>} */ (
      Object.fromEntries(SUMS.map((name) => [name, total(name)]))
    ),
    hits,
    finished,
    ttft: mean(ttfts),
    itl: mean(gaps),
    wall: measures.end[to - firstStep] - measures.start[from - firstStep],
  };
}

/** @param {number[]} values */
function mean(values) {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

/** The sums as text. @param {Model} model @param {[from: number, to: number]} range */
export function rangeWords(model, [from, to]) {
  const sum = aggregate(model, from, to);
  const several = from < to ? [`${sum.steps} steps`] : [];
  const measured = sum.wall > 0 ? [duration(sum.wall)] : [];
  const size = [...several, ...measured].join(", ");
  const parts = [
    ["prefill", sum.prefill],
    ["decode", sum.decode],
    ["recomputed", sum.catchup],
  ];
  const kinds = parts.filter(([, count]) => count).map(([name, count]) => `${count} ${name}`);
  const words = [
    `${from < to ? `Steps ${from} to ${to}` : `Step ${from}`}${size && `: ${size}`}.`,
    missing(model, "scheduled_tokens") ||
      `${plural(sum.tokens, "token")}${kinds.length ? `: ${kinds.join(", ")}` : ""}.`,
  ];
  const counts = [
    !lacks(model, "preemptions") && plural(sum.preempted, "preemption"),
    !lacks(model, "evictions") && `${plural(sum.evicted, "block")} evicted`,
    !lacks(model, "cached_tokens") &&
      `${plural(sum.hits, "hit")}${sum.found ? ` of ${plural(sum.found, "token")}` : ""}`,
  ].filter(Boolean);
  if (counts.length) words.push(`${counts.join(", ")}.`);
  if (lacks(model, "arrivals")) return words.join(" ");
  const means = /** @type {[string, number][]} */ ([
    ["TTFT", sum.ttft],
    ["ITL", sum.itl],
  ]).filter(([, value]) => value > 0);
  const times = means.map(([name, value]) => `mean ${name} ${duration(value)}`).join(", ");
  words.push(`${plural(sum.finished, "request")} finished${times && `: ${times}`}.`);
  return words.join(" ");
}
