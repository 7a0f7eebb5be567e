/**
 * The waterfall in words: what the run's time went to, and why one request was slow.
 * `visualizer/reading/waterfall/words.py` says the same of a request.
 */

import causeFacts from "../../../reading/waterfall/cause_facts.json" with { type: "json" };
import { duration } from "./duration.ts";
import type { LogSource } from "./fold.ts";
import { type Fact, levelOf } from "./knowledge.ts";
import { adoptedWords, fill, messages, reasonWords } from "./messages.ts";
import type { Model } from "./model.ts";
import { historyOf, isRow, type Segment } from "./request_spans.ts";
import { lateness, type Slo } from "./run_summary.ts";
import { CAUSES, isInVain, LOST, type RequestTime, WAITING, WORK } from "./waterfall.ts";
import { bold, count, digits, list, type Span, say } from "./words.ts";

/** all spans of a request with one cause; waiting behind others is a row of its own */
export interface CauseRow {
  cause: string;
  isBehind: boolean;
  time: number;
  steps: number[];
  about: number[]; // different requests, in order
  mark: "recorded" | "inferred" | "unknown"; // whether the log recorded the cause, or it is inferred or unknown
}

const { rows: ROWS, causes: NAMES, total, total_so_far, most: MOST } = messages.waterfall;
const { helped: HELPED, helped_later: LATER } = messages.waterfall;
const ORDER = [...WORK, ...LOST, ...WAITING];
const FACTS = causeFacts as Record<string, Fact[]>;
/** Derived from the log even if it recorded all facts. */
const INFERRED = new Set(["others_prefill"]);
/** Requests that are named; of more, the number. */
const NAMED = 3;
const SMALL = "No One Two Three Four Five Six Seven Eight Nine Ten Eleven Twelve".split(" ");

/** A few words for a cause. */
export function causeName(cause: string): string {
  return reasonWords[cause] ?? (NAMES as Record<string, string>)[cause] ?? cause;
}

/** A time in the waterfall's unit. */
export function timeWords(time: number, unit: "us" | "steps") {
  return unit === "us" ? duration(time) : count(time, "step");
}

/** How a log from this source knows that time had this cause. */
export function causeLevel(cause: string, source: LogSource) {
  if (cause === "unknown") return "unknown";
  const level = levelOf({ source }, FACTS[cause] ?? FACTS.waiting);
  return level === "recorded" && INFERRED.has(cause) ? "inferred" : level;
}

/** One row per cause: work, then what was lost, then waiting, then the engine's. */
export function causeRows({ spans }: Pick<RequestTime, "spans">, source: LogSource) {
  const rows: Map<string, CauseRow> = new Map();
  const named: Set<string> = new Set();
  for (const { start, end, cause, step, about } of spans) {
    const isBehind = about !== null && WAITING.includes(cause);
    const key = `${cause} ${isBehind}`;
    const row = rows.get(key) ?? {
      cause,
      isBehind,
      time: 0,
      steps: [],
      about: [],
      mark: causeLevel(cause, source),
    };
    rows.set(key, row);
    row.time += end - start;
    if (row.steps.at(-1) !== step) row.steps.push(step);
    const name = `${key} ${about}`;
    if (about !== null && !named.has(name)) row.about.push(about);
    named.add(name);
  }
  const rank = ({ cause }: CauseRow) =>
    ORDER.includes(cause) ? ORDER.indexOf(cause) : ORDER.length;
  return [...rows.values()].sort((a, b) => rank(a) - rank(b));
}

/** What a row's time was spent on. */
export function rowWords(
  model: Model,
  { request }: RequestTime,
  { cause, isBehind, about }: CauseRow,
): Span[] {
  const who = list(
    about.map((id) =>
      id === request.id ? fill(ROWS.itself, { who: model.tag(id) }) : model.tag(id),
    ),
    NAMED,
  );
  const work = historyOf(request).filter((one) => isRow(one) && !isInVain(one));
  const tokens = (of: (one: Segment) => number) =>
    work.reduce((sum, one) => sum + (Number(one.to) - one.from + 1) * of(one), 0);
  const fresh = ({ count = 1, recomputed = 0 }: Segment) => count - recomputed;
  const isPrefill = ({ kind, reachesOutput }: Segment) => kind !== "decode" && !reachesOutput;
  switch (cause) {
    case "prefill": {
      const { found, prefix } = request.admitted ?? {};
      const cached = say`${found ? fill(ROWS.cached, { found }) : []}${prefix ? adoptedWords(prefix) : ""}`;
      const computed = tokens((one) => (isPrefill(one) ? fresh(one) : 0));
      return fill(ROWS.prefill, { tokens: computed, cached: cached as any });
    }
    case "decode":
      return fill(ROWS.decode, { tokens: tokens((one) => (isPrefill(one) ? 0 : fresh(one))) });
    case "recomputed":
      return fill(ROWS.recomputed, { tokens: tokens(({ recomputed = 0 }) => recomputed) });
    case "preempted":
      return about.length
        ? fill(ROWS.preempted, { who: who as any })
        : say`${ROWS.preempted_by_unknown}`;
  }
  if (reasonWords[cause]) {
    const values = { who: who as any, reason: causeName(cause) };
    return fill(isBehind ? ROWS.behind : ROWS.waiting, values);
  }
  return say`${(ROWS as Record<string, string>)[cause]}`;
}

/** How long a request took, and what most of the rest was. */
export function headline(model: Model, time: RequestTime) {
  const { unit } = model.waterfall;
  const { request, byCause } = time;
  const said = fill(request.finished ? total : total_so_far, {
    who: model.tag(request.id),
    total: timeWords(time.total, unit),
    work: timeWords(time.work, unit),
  });
  const rest = CAUSES.filter((cause) => byCause[cause] && !WORK.includes(cause));
  if (!rest.length) return said;
  const most = rest.reduce((best, cause) => (byCause[cause] > byCause[best] ? cause : best));
  const words = { time: timeWords(byCause[most], unit), cause: causeName(most) };
  return say`${said}${fill(MOST, words)}`;
}

/**
 * What would have helped, as far as the log says it; empty if it does not. A replay shows what a whole run gains from
 * more blocks; this is about one decision.
 */
export function helped({ request, spans }: RequestTime): Span[] {
  if (!request.shortfall) return [];
  const { step, missing } = request.shortfall;
  const computed = spans.filter(({ cause }) => WORK.includes(cause) || cause === "recomputed");
  const later = computed.find((one) => one.step > step)?.step;
  const words = fill(HELPED, { missing, step });
  return later === undefined ? words : [...words, ...fill(LATER, { later })];
}

/** The run in a sentence. */
export function verdict(model: Model, times: RequestTime[], slo: Slo): Span[] {
  const { unit } = model.waterfall;
  const requests = count(times.length, "request");
  if (!times.length) return say`No request yet.`;
  if (unit !== "us")
    return say`${bold(say`${requests}.`)} This log has no times, so steps are counted.`;
  const late = times.map((time) => ({ time, ...lateness(model, time, slo) }));
  const first = late.filter((one) => one.first).length;
  const later = late.filter(({ first, gaps }) => gaps && !first);
  const outside = first + later.length;
  if (!outside)
    return say`${bold(say`${requests}, ${times.length > 1 ? "all " : ""}within the SLO.`)}${mostWords(times)}`;
  const begin = bold(say`${requests}, ${digits(outside)} outside the SLO.`);
  const waited = first
    ? say` ${SMALL[first] ?? digits(first)} waited too long for ${first === 1 ? "its" : "their"} first token.`
    : [];
  return say`${begin}${waited}${gapWords(
    model,
    later.map(({ time }) => time),
    slo,
  )}`;
}

/** Requests with a first token in time and long gaps later. */
function gapWords(model: Model, times: RequestTime[], slo: Slo) {
  if (!times.length) return [];
  const most = [...times].sort((a, b) => preemptedTime(b) - preemptedTime(a)).slice(0, NAMED);
  const lost = most.filter((time) => preemptedTime(time));
  if (lost.length && lost.length === times.length) {
    const names = list(lost.map(({ request }) => model.tag(request.id)));
    const spent = list(lost.map((time) => duration(preemptedTime(time))));
    return say` ${names} got ${lost.length > 1 ? "theirs" : "its first token"} in time and then lost ${spent} to preemption.`;
  }
  const names = list(
    times.map(({ request }) => model.tag(request.id)),
    NAMED,
  );
  return say` ${names} got the first token in time and then had gaps of more than ${duration(slo.itl)}.`;
}

function preemptedTime({ byCause }: RequestTime) {
  return (byCause.preempted ?? 0) + (byCause.recomputed ?? 0);
}

/** What most of the time that was not work went to. */
function mostWords(times: RequestTime[]) {
  const sums = totals(times);
  const all = Object.values(sums).reduce((sum, one) => sum + one, 0);
  const [most] = Object.keys(sums)
    .filter((cause) => !WORK.includes(cause))
    .sort((a, b) => sums[b] - sums[a]);
  if (!most) return say` All of their time was their own work.`;
  return say` Most of the time that was not their own work: ${causeName(most)}, ${share(sums[most], all)} of all.`;
}

/** Time by cause over all requests, in the order of keys. */
export function totals(times: RequestTime[]): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const { byCause } of times)
    for (const cause of Object.keys(byCause)) sums[cause] = (sums[cause] ?? 0) + byCause[cause];
  return Object.fromEntries(
    CAUSES.filter((cause) => sums[cause]).map((cause) => [cause, sums[cause]]),
  );
}

/** "5 %"; what is there is never 0 %. */
export function share(part: number, whole: number) {
  const percent = (100 * part) / whole;
  return percent < 0.5 ? "< 1 %" : `${Math.round(percent)} %`;
}
