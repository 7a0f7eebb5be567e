/** Sums over a range of steps. Pure functions. */

import { plural } from "../drawing/html.ts";
import { duration } from "../model/duration.ts";
import { lacks, missing } from "../model/knowledge.ts";
import type { CountName } from "../model/measures.ts";
import type { Model } from "../model/model.ts";

const SUMS = ["tokens", "prefill", "decode", "catchup", "preempted", "evicted", "found"] as const;

/** Sums and means over the steps from `from` to `to`, inclusive. Times in microseconds, NaN if unknown. */
export function aggregate(model: Model, from: number, to: number) {
  const { measures, firstStep } = model;
  const total = (name: CountName) => {
    let sum = 0;
    for (let i = from - firstStep; i <= to - firstStep; i += 1) sum += measures[name].at(i);
    return sum;
  };
  const inside = (step: number) => step >= from && step <= to;
  let hits = 0;
  const ttfts: number[] = [];
  const gaps: number[] = [];
  let finished = 0;
  for (const span of model.requests) {
    hits += span.admissions.filter(({ step, found }) => found && inside(step)).length;
    if (!span.finished || !inside(span.finished.step)) continue;
    finished += 1;
    const times = span.tokenSteps.map((step) => measures.end.at(step - firstStep));
    if (times.length && span.arrivedAt != null) ttfts.push(times[0] - span.arrivedAt);
    if (times.length > 1) gaps.push((times[times.length - 1] - times[0]) / (times.length - 1));
  }
  return {
    steps: to + 1 - from,
    ...(Object.fromEntries(SUMS.map((name) => [name, total(name)])) as Record<
      (typeof SUMS)[number],
      number
    >),
    hits,
    finished,
    ttft: mean(ttfts),
    itl: mean(gaps),
    wall: measures.end.at(to - firstStep) - measures.start.at(from - firstStep),
  };
}

function mean(values: number[]) {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

/** The sums as text. */
export function rangeWords(model: Model, [from, to]: [from: number, to: number]) {
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
  const means = (
    [
      ["TTFT", sum.ttft],
      ["ITL", sum.itl],
    ] as [string, number][]
  ).filter(([, value]) => value > 0);
  const times = means.map(([name, value]) => `mean ${name} ${duration(value)}`).join(", ");
  words.push(`${plural(sum.finished, "request")} finished${times && `: ${times}`}.`);
  return words.join(" ");
}
