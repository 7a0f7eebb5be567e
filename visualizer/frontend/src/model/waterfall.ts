/**
 * Where each request's time went: ordered spans without a gap, from its arrival to its end.
 * `visualizer/reading/waterfall` explains the causes and cuts the same spans; a golden test compares them.
 */

import { firstWhere, keep, Numbers, type Readable } from "./columns.ts";
import { reasons } from "./messages.ts";
import { historyOf, isRow, type RequestSpan, type Segment } from "./request_spans.ts";
import type { StepRecords, TimeRecords } from "./time_records.ts";
import { FOR_ALL } from "./waits.ts";

export interface Span {
  start: number; // since the run started, in the waterfall's unit
  end: number;
  cause: string;
  step: number; // the step whose decision or forward pass it is
  /**
   * waiting: the head of the queue that it waits behind; preempted: the request
   * that needed its blocks, possibly itself
   */
  about: number | null;
}

export interface RequestTime {
  request: RequestSpan;
  spans: Span[];
  total: number; // arrival to end
  byCause: Record<string, number>; // adds up to `total`
  work: number; // computed for the first time
  lost: number; // preempted, computed again, or made longer by others' prefill
  firstToken: number | null; // since its arrival
  ttft: number | null; // the same without the time in which the engine was paused
}

type Emit = (
  start: number,
  end: number,
  cause: string,
  about?: number | null,
  step?: number,
) => void;

/** what of a request its causes follow from */
type Life = Pick<RequestSpan, "id" | "forked" | "examined" | "admitted" | "segments" | "before">;
/** By cause, the time that all steps before an index have for a request that does one thing in each of them. */
type Sums = Record<string, Numbers>;
/** Of a request that waits all the time, and of one that decodes. */
type AllSums = { waiting: Sums; decode: Sums };

export const WORK = ["prefill", "decode"];
export const LOST = ["preempted", "recomputed", "others_prefill"];
export const WAITING = [
  ...Object.keys(reasons),
  "awaits_token",
  "prefill_batch",
  "step_in_progress",
];
export const ENGINE = ["between_passes", "failed_step", "paused", "unknown"];
/** In the order of keys and lists. */
export const CAUSES = [...WAITING, ...WORK, ...LOST, ...ENGINE];

/** A request of which nothing is known. */
const ANY: Life = { id: -1, forked: null, examined: 0, admitted: null, segments: [], before: [] };
/** Decode-only steps before and after a step that its decodes are compared with. */
const NEIGHBOURS = 3;

/** Steps that are summed up at once. */
const AT_ONCE = 4096;

/** Bars that are drawn again without a new look at each of their steps: more than a screen has. */
const MOST_KEPT = 40;

/** A `RequestTime`, whose spans are made when they are asked for. A class takes less room than objects with getters. */
class KnownTime {
  #spansOf;

  constructor(time: Omit<RequestTime, "spans">, spansOf: (request: RequestSpan) => Span[]) {
    Object.assign(this, time);
    this.#spansOf = spansOf;
  }

  get spans() {
    return this.#spansOf((this as unknown as RequestTime).request);
  }
}

export class Waterfall {
  #known: Map<number, RequestTime> = new Map();
  /** The spans of the requests that were looked at last. */
  #kept: Map<RequestSpan, Span[]> = new Map();
  #records;
  #ownTimes: Times | null = null;
  /** How much longer the decodes of each step took because of its prefills, by the step's index. */
  #others: Numbers | null = null;
  #sums: AllSums | null = null;
  /** By request, the steps that gave it no tokens for a reason of its own; known if the sums are. */
  #skips: Record<number, number[]> = {};
  unit: "us" | "steps";

  constructor(records: TimeRecords) {
    this.#records = records;
    this.unit = records.hasTimes ? "us" : "steps";
  }

  /** Throws `Absent` if the steps are still to be read, as does whatever looks at them. */
  get #steps() {
    return this.#records.steps;
  }

  get #times() {
    const { times } = this.#steps;
    return (this.#ownTimes ??= this.unit === "us" ? times : inUnits());
  }

  /**
   * The times of all requests, in order of appearance. Thousands may wait in each of a million steps, so each step is
   * looked at once for all who wait in it, not once for each.
   */
  all(): RequestTime[] {
    const { list } = this.#records.spans;
    if (this.#known.size < list.length) this.#sums ??= this.#sumUp();
    const times = list.map(({ id }) => this.of(id));
    this.#sums = null; // they take as much as the steps
    return times;
  }

  of(id: number): RequestTime {
    const known = this.#known.get(id);
    if (known) return known;
    const request = this.#records.spans.byId.get(id);
    if (!request) throw new RangeError(`there is no request ${id}`);
    const time = this.#timeOf(request);
    this.#known.set(id, time);
    return time;
  }

  #timeOf(request: RequestSpan): RequestTime {
    const byCause: Record<string, number> = {};
    const add: Emit = (start, end, cause) => {
      byCause[cause] = (byCause[cause] ?? 0) + end - start;
    };
    this.#walk(request, add, this.#sums);
    const sum = (causes: string[]) =>
      causes.reduce((total, cause) => total + (byCause[cause] ?? 0), 0);
    const arrived = this.arrived(request);
    const first = request.firstToken === null ? null : this.#times.end.at(request.firstToken);
    const firstToken = first === null || arrived === null ? null : first - arrived;
    const paused =
      this.unit === "us" ? this.#records.paused.between(Number(arrived), Number(first)) : 0;
    const time = {
      request,
      total: sum(Object.keys(byCause)),
      byCause,
      work: sum(WORK),
      lost: sum(LOST),
      firstToken,
      ttft: firstToken === null ? null : firstToken - paused,
    };
    return new KnownTime(time, this.#spansOf) as unknown as RequestTime;
  }

  /** When a request arrived; null if that was before the log begins, or the log has no time of it. */
  arrived({ arrived, arrivedAt, beginsAt }: RequestSpan): number | null {
    if (arrived === null) return null;
    return this.unit === "steps" ? beginsAt : arrivedAt;
  }

  #spansOf = (request: RequestSpan): Span[] => {
    const kept = this.#kept.get(request);
    if (kept) return kept;
    const spans: Span[] = [];
    this.#walk(request, (start, end, cause, about = null, step = 0) => {
      const last = spans.at(-1);
      if (last?.step === step && last.cause === cause && last.about === about) last.end = end;
      else spans.push({ start, end, cause, step, about });
    });
    return keep(this.#kept, request, spans, MOST_KEPT);
  };

  /** Emits the parts of a request's time. With `sums`, some only have the right cause and length. */
  #walk(request: RequestSpan, emit: Emit, sums: AllSums | null = null) {
    const { number } = this.#steps.counts;
    const times = this.#times;
    const arrived = this.arrived(request);
    const rows = historyOf(request).filter(isRow);
    const end = Math.min(request.endsAt ?? Infinity, this.#steps.length);
    // A request may have been sent before a step ended that the log has before its arrival.
    let first = request.beginsAt;
    while (arrived !== null && first && times.end.at(first - 1) > arrived) first--;
    let at = 0; // in `rows`
    for (let index = first; index < end; index++) {
      const step = number.at(index);
      while (at < rows.length && Number(rows[at].to) < step) at++;
      const row = rows[at]?.from <= step ? rows[at] : null;
      const before = index ? times.end.at(index - 1) : 0;
      let start = arrived === null ? before : Math.max(before, arrived);
      if (arrived === null && !index)
        start = Math.min(times.begin.at(index), times.launched.at(index));
      if (start >= times.end.at(index)) continue;
      if (sums && index && start === before) {
        const until = this.#lasts(request, step, row);
        const to = firstWhere(end, (one) => number.at(one) >= until);
        for (const [cause, sum] of Object.entries(row ? sums.decode : sums.waiting))
          if (sum.at(to) > sum.at(index)) emit(sum.at(index), sum.at(to), cause);
        if (to > index) {
          index = to - 1;
          continue;
        }
      }
      this.#tile(request, index, row, start, (from, to, cause, about) => {
        if (from < to) emit(from, to, cause, about, step);
      });
    }
  }

  /** The first step in which a request no longer waits or decodes as in this one; 0 if this one is told by itself. */
  #lasts({ id, examined, admitted, forked }: RequestSpan, step: number, row: Segment | null) {
    if (row)
      return row.kind === "decode" && !row.recomputed && !isInVain(row) ? Number(row.to) + 1 : 0;
    if (step < examined) return 0;
    const skips = this.#skips[forked?.parent ?? id] ?? [];
    const skip = skips[firstWhere(skips.length, (one) => skips[one] >= step)];
    return Math.min(admitted?.step ?? Infinity, skip ?? Infinity);
  }

  #sumUp(): AllSums {
    const { length, skips, counts } = this.#steps;
    for (let index = 0; index < length; index++)
      for (const [id] of skips.at(index)) (this.#skips[id] ??= []).push(counts.number.at(index));
    return {
      waiting: this.#sumsOf(null),
      decode: this.#sumsOf({ kind: "decode", from: 0, to: null }),
    };
  }

  #sumsOf(row: Segment | null) {
    const { length } = this.#steps;
    const { end } = this.#times;
    const sums: Sums = {};
    for (let first = 0; first < length; first += AT_ONCE) {
      const last = Math.min(length, first + AT_ONCE);
      const parts: Record<string, Float64Array> = {};
      const partOf = (cause: string) => (parts[cause] ??= new Float64Array(last - first));
      for (let index = Math.max(1, first); index < last; index++)
        if (end.at(index - 1) < end.at(index))
          this.#tile(ANY, index, row, end.at(index - 1), (from, to, cause) => {
            if (from < to) partOf(cause)[index - first] += to - from;
          });
      for (const cause of new Set([...Object.keys(sums), ...Object.keys(parts)])) {
        sums[cause] ??= new Numbers();
        const sum = sums[cause];
        let total = sum.at(first) || 0;
        sum.put(
          first + 1,
          partOf(cause).map((more) => (total += more)),
        );
      }
    }
    return sums;
  }

  #tile(request: Life, index: number, row: Segment | null, start: number, emit: Emit) {
    const times = this.#times;
    const begin = times.begin.at(index);
    if (this.#steps.counts.isAfterGap.at(index) && start < begin) {
      emit(start, begin, "unknown");
      start = begin;
    }
    const launched = Math.max(start, times.launched.at(index));
    const ready = Math.max(start, times.ready.at(index));
    const computes = row !== null && !isInVain(row);
    const [cause, about]: [string, number | null] = computes
      ? ["between_passes", null]
      : absent(request, this.#steps, index, row);
    this.#cut(start, launched, cause, about, emit);
    if (computes) this.#computed(row, index, launched, ready, emit);
    else emit(launched, ready, cause, about);
    this.#cut(ready, times.end.at(index), cause, about, emit);
  }

  /** Emits a time in which no pass ran, and its paused parts. */
  #cut(start: number, end: number, cause: string, about: number | null, emit: Emit) {
    let at = start;
    if (this.unit === "us") {
      for (const pause of this.#records.paused.intervals) {
        const from = Math.max(at, pause.begin);
        const to = Math.min(end, pause.end);
        if (from >= to) continue;
        emit(at, from, cause, about);
        emit(from, to, "paused");
        at = to;
      }
    }
    emit(at, end, cause, about);
  }

  #computed(row: Segment, index: number, start: number, end: number, emit: Emit) {
    const { kind, recomputed = 0, count = 1 } = row;
    const middle = start + Math.floor(((end - start) * recomputed) / count);
    emit(start, middle, "recomputed");
    if (kind !== "decode") return emit(middle, end, row.reachesOutput ? "decode" : "prefill");
    this.#others ??= othersPrefill(this.#steps, this.#times);
    const cut = Math.max(middle, end - (this.#others.at(index) || 0));
    emit(middle, cut, "decode");
    emit(cut, end, "others_prefill");
  }
}

type Times = Record<keyof StepRecords["times"], Readable>;

/** Times of steps that each take a unit. */
function inUnits(): Times {
  const [begin, end] = [0, 1].map((first) => ({ at: (index: number) => first + index }));
  return { begin, launched: begin, ready: end, end };
}

/** Whether a row was computed in vain, or not at all. What is computed after a request's end is no time of it. */
export const isInVain = ({ wasted }: Segment) => wasted !== undefined && wasted !== "ended";

/** Why a request has no row in a step, and which request that is about. */
function absent(
  request: Life,
  steps: StepRecords,
  index: number,
  row: Segment | null,
): [string, number | null] {
  const { forked, examined, admitted } = request;
  const step = steps.counts.number.at(index);
  const away = historyOf(request).find(
    ({ kind, from, to }) => kind === "preempted" && from <= step && step <= (to ?? Infinity),
  );
  if (away) return ["preempted", away.by ?? null];
  if (step < examined) return ["step_in_progress", null];
  const id = forked && step <= forked.step ? forked.parent : request.id;
  const own = steps.skipped(index, id);
  if (own) return [own, null];
  if (steps.counts.failed.at(index) || row) return ["failed_step", null];
  const isAdmitted = admitted !== null && admitted.step <= step;
  const blocked = steps.heads.at(index);
  if (!blocked || isAdmitted) return ["unknown", null];
  const [head, reason] = blocked;
  return [reason, head === id || FOR_ALL.has(reason) ? null : head];
}

/**
 * Compares each step that decodes and prefills with steps nearby that only decode: see `_infer_others_prefill` in
 * `records.py`.
 */
function othersPrefill(steps: StepRecords, { launched, ready }: Times) {
  const { decodes, prefills, failed } = steps.counts;
  /** Indexes of the steps that only decode, by number of decodes. */
  const alone: Map<number, number[]> = new Map();
  for (let index = 0; index < steps.length; index++) {
    const own = decodes.at(index);
    if (!own || prefills.at(index) || failed.at(index)) continue;
    const group = alone.get(own);
    if (group) group.push(index);
    else alone.set(own, [index]);
  }
  const sizes = [...alone.keys()].sort((a, b) => b - a);
  const others = new Numbers();
  for (let index = 0; index < steps.length; index++) {
    const own = decodes.at(index);
    if (!own || !prefills.at(index) || !sizes.length) continue;
    const size = sizes.reduce((best, one) =>
      Math.abs(one - own) < Math.abs(best - own) ? one : best,
    );
    const group = alone.get(size) ?? [];
    const at = firstWhere(group.length, (one) => group[one] >= index);
    const near = group.slice(Math.max(0, at - NEIGHBOURS), at + NEIGHBOURS);
    const took = near.map((one) => ready.at(one) - launched.at(one)).sort((a, b) => a - b);
    const alike = took[(took.length - 1) >> 1];
    others.set(index, Math.max(0, ready.at(index) - launched.at(index) - alike));
  }
  return others;
}
