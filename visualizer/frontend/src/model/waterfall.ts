/**
 * Where each request's time went: ordered spans without a gap, from its arrival to its end.
 * `visualizer/reading/waterfall` explains the causes and cuts the same spans; a golden test compares them.
 */

import { firstWhere } from "./columns.ts";
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

/** The slowest first. */
export const byTotal = (one: RequestTime, other: RequestTime) => other.total - one.total;

type Emit = (start: number, end: number, cause: string, about?: number | null) => void;

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

/** Decode-only steps before and after a step that its decodes are compared with. */
const NEIGHBOURS = 3;

export class Waterfall {
  #known: Map<number, RequestTime> = new Map();
  #records;
  #steps: StepRecords;
  #times: StepRecords["times"];
  /** How much longer the decodes of each step took because of its prefills, by the step's index. */
  #others: Float64Array | null = null;
  unit: "us" | "steps";

  constructor(records: TimeRecords) {
    this.#records = records;
    this.unit = records.hasTimes ? "us" : "steps";
    this.#steps = records.steps;
    const inUnits = (from: number) =>
      Float64Array.from({ length: records.steps.length }, (_, index) => from + index);
    this.#times = records.steps.times;
    if (records.hasTimes) return;
    const [begin, end] = [inUnits(0), inUnits(1)];
    this.#times = { begin, launched: begin, ready: end, end };
  }

  /** The times of all requests, in order of appearance. */
  all(): RequestTime[] {
    return this.#records.spans.list.map(({ id }) => this.of(id));
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
    const spans = this.#spans(request);
    const byCause: Record<string, number> = {};
    for (const { start, end, cause } of spans) byCause[cause] = (byCause[cause] ?? 0) + end - start;
    const sum = (causes: string[]) =>
      causes.reduce((total, cause) => total + (byCause[cause] ?? 0), 0);
    const arrived = this.arrived(request);
    const first = request.firstToken === null ? null : this.#times.end[request.firstToken];
    const firstToken = first === null || arrived === null ? null : first - arrived;
    const paused =
      this.unit === "us" ? this.#records.paused.between(Number(arrived), Number(first)) : 0;
    return {
      request,
      spans,
      total: spans.length ? spans[spans.length - 1].end - spans[0].start : 0,
      byCause,
      work: sum(WORK),
      lost: sum(LOST),
      firstToken,
      ttft: firstToken === null ? null : firstToken - paused,
    };
  }

  /** When a request arrived; null if that was before the log begins, or the log has no time of it. */
  arrived({ arrived, arrivedAt, beginsAt }: RequestSpan): number | null {
    if (arrived === null) return null;
    return this.unit === "steps" ? beginsAt : arrivedAt;
  }

  #spans(request: RequestSpan): Span[] {
    const { length } = this.#steps;
    const number = this.#steps.counts.number.values;
    const times = this.#times;
    const arrived = this.arrived(request);
    const rows = historyOf(request).filter(isRow);
    const end = Math.min(request.endsAt ?? length, length);
    // A request may have been sent before a step ended that the log has before its arrival.
    let first = request.beginsAt;
    while (arrived !== null && first && times.end[first - 1] > arrived) first--;
    const spans: Span[] = [];
    let at = 0; // in `rows`
    for (let index = first; index < end; index++) {
      const step = number[index];
      const ends = times.end[index];
      while (at < rows.length && Number(rows[at].to) < step) at++;
      const row = rows[at]?.from <= step ? rows[at] : null;
      const before = index ? times.end[index - 1] : 0;
      let start = arrived === null ? before : Math.max(before, arrived);
      if (arrived === null && !index) start = Math.min(times.begin[index], times.launched[index]);
      if (start >= ends) continue;
      const begins = spans.length;
      this.#tile(request, index, row, start, (from, to, cause, about = null) => {
        if (to <= from) return;
        const last = spans[spans.length - 1];
        if (spans.length > begins && last.cause === cause && last.about === about) last.end = to;
        else spans.push({ start: from, end: to, cause, step, about });
      });
    }
    return spans;
  }

  #tile(request: RequestSpan, index: number, row: Segment | null, start: number, emit: Emit) {
    const times = this.#times;
    const begin = times.begin[index];
    if (this.#steps.counts.isAfterGap.values[index] && start < begin) {
      emit(start, begin, "unknown");
      start = begin;
    }
    const launched = Math.max(start, times.launched[index]);
    const ready = Math.max(start, times.ready[index]);
    const computes = row !== null && !isInVain(row);
    const [cause, about]: [string, number | null] = computes
      ? ["between_passes", null]
      : absent(request, this.#steps, index, row);
    this.#cut(start, launched, cause, about, emit);
    if (computes) this.#computed(row, index, launched, ready, emit);
    else emit(launched, ready, cause, about);
    this.#cut(ready, times.end[index], cause, about, emit);
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
    const cut = Math.max(middle, end - this.#others[index]);
    emit(middle, cut, "decode");
    emit(cut, end, "others_prefill");
  }
}

/** Whether a row was computed in vain, or not at all. What is computed after a request's end is no time of it. */
export const isInVain = ({ wasted }: Segment) => wasted !== undefined && wasted !== "ended";

/** Why a request has no row in a step, and which request that is about. */
function absent(
  request: RequestSpan,
  steps: StepRecords,
  index: number,
  row: Segment | null,
): [string, number | null] {
  const { forked, examined, admitted } = request;
  const step = steps.counts.number.values[index];
  const away = historyOf(request).find(
    ({ kind, from, to }) => kind === "preempted" && from <= step && step <= (to ?? Infinity),
  );
  if (away) return ["preempted", away.by ?? null];
  if (step < examined) return ["step_in_progress", null];
  const id = forked && step <= forked.step ? forked.parent : request.id;
  const own = steps.skipped(index, id);
  if (own) return [own, null];
  if (steps.counts.failed.values[index] || row) return ["failed_step", null];
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
function othersPrefill(steps: StepRecords, { launched, ready }: StepRecords["times"]) {
  const [decodes, prefills] = [steps.counts.decodes.values, steps.counts.prefills.values];
  /** Indexes of the steps that only decode, by number of decodes. */
  const alone: Map<number, number[]> = new Map();
  for (let index = 0; index < steps.length; index++) {
    if (!decodes[index] || prefills[index] || steps.counts.failed.values[index]) continue;
    const group = alone.get(decodes[index]);
    if (group) group.push(index);
    else alone.set(decodes[index], [index]);
  }
  const sizes = [...alone.keys()].sort((a, b) => b - a);
  const others = new Float64Array(steps.length);
  for (let index = 0; index < steps.length; index++) {
    const own = decodes[index];
    if (!own || !prefills[index] || !sizes.length) continue;
    const size = sizes.reduce((best, one) =>
      Math.abs(one - own) < Math.abs(best - own) ? one : best,
    );
    const group = alone.get(size) ?? [];
    const at = firstWhere(group.length, (one) => group[one] >= index);
    const near = group.slice(Math.max(0, at - NEIGHBOURS), at + NEIGHBOURS);
    const took = near.map((one) => ready[one] - launched[one]).sort((a, b) => a - b);
    others[index] = Math.max(0, ready[index] - launched[index] - took[(took.length - 1) >> 1]);
  }
  return others;
}
