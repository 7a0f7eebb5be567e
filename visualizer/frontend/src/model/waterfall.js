/**
 * Where each request's time went: ordered spans without a gap, from its arrival to its end.
 * `visualizer/reading/waterfall` explains the causes and cuts the same spans; a golden test compares them.
 *
 * @typedef {object} Span
 * @property {number} start  since the run started, in the waterfall's unit
 * @property {number} end
 * @property {string} cause
 * @property {number} step   the step whose decision or forward pass it is
 * @property {number | null} about  waiting: the head of the queue that it waits behind; preempted: the request
 *   that needed its blocks, possibly itself
 *
 * @typedef {object} RequestTime
 * @property {import("./time_records.js").Life} life
 * @property {Span[]} spans
 * @property {number} total       arrival to end
 * @property {Record<string, number>} byCause  adds up to `total`
 * @property {number} work        computed for the first time
 * @property {number} lost        preempted, computed again, or made longer by others' prefill
 * @property {number | null} firstToken  since its arrival
 * @property {number | null} ttft        the same without the time in which the engine was paused
 */

/** @import { Life, Step, TimeRecords, Work } from "./time_records.js" */
/** @typedef {(start: number, end: number, cause: string, about?: number | null) => void} Emit */
import { reasons } from "./messages.js";
import { FOR_ALL } from "./waits.js";

export const WORK = ["prefill", "decode"];
export const LOST = ["preempted", "recomputed", "others_prefill"];
export const WAITING = [...Object.keys(reasons), "awaits_token", "step_in_progress"];
export const ENGINE = ["between_passes", "failed_step", "paused", "unknown"];
/** In the order of keys and lists. */
export const CAUSES = [...WAITING, ...WORK, ...LOST, ...ENGINE];

/** Decode-only steps before and after a step that its decodes are compared with. */
const NEIGHBOURS = 3;

export class Waterfall {
  /** @type {Map<number, RequestTime>} */
  #known = new Map();
  #records;
  #steps;
  /** How much longer the decodes of each step took because of its prefills, by the step's index. */
  #others;
  /** When each step ended. */
  #ends;

  /** @param {TimeRecords} records */
  constructor(records) {
    this.#records = records;
    this.source = records.source;
    /** @type {"us" | "steps"} */
    this.unit = records.hasTimes ? "us" : "steps";
    this.#steps = records.hasTimes ? records.steps : records.steps.map(asUnit);
    this.#others = othersPrefill(this.#steps);
    this.#ends = new Map(this.#steps.map(({ number, end }) => [number, end]));
  }

  /** The times of all requests, in order of appearance. @returns {RequestTime[]} */
  all() {
    return [...this.#records.lives.keys()].map((id) => this.of(id));
  }

  /** @param {number} id @returns {RequestTime} */
  of(id) {
    const known = this.#known.get(id);
    if (known) return known;
    const life = this.#records.lives.get(id);
    if (!life) throw new RangeError(`there is no request ${id}`);
    const time = this.#timeOf(life);
    this.#known.set(id, time);
    return time;
  }

  /**
   * The times between a request's tokens, without the time in which the engine was paused.
   *
   * @param {RequestTime} time
   * @param {number[]} tokenSteps  the step of each token
   * @returns {number[]}
   */
  gaps({ spans }, tokenSteps) {
    const pauses = spans.filter(({ cause }) => cause === "paused");
    const ends = tokenSteps.map((step) => this.#ends.get(step) ?? NaN);
    const gaps = ends.slice(1).map((end, index) => {
      const begin = ends[index];
      const paused = pauses.filter((pause) => pause.start < end && pause.end > begin);
      return paused.reduce((gap, pause) => gap - (pause.end - pause.start), end - begin);
    });
    return gaps.filter((gap) => !Number.isNaN(gap));
  }

  /** @param {Life} life @returns {RequestTime} */
  #timeOf(life) {
    const spans = this.#spans(life);
    /** @type {Record<string, number>} */
    const byCause = {};
    for (const { start, end, cause } of spans) byCause[cause] = (byCause[cause] ?? 0) + end - start;
    const sum = (/** @type {string[]} */ causes) =>
      causes.reduce((total, cause) => total + (byCause[cause] ?? 0), 0);
    const arrived = this.arrived(life);
    const first = life.firstToken === null ? null : this.#steps[life.firstToken].end;
    const firstToken = first === null || arrived === null ? null : first - arrived;
    const paused = spans
      .filter(({ cause, start }) => cause === "paused" && first !== null && start < first)
      .reduce((total, { start, end }) => total + Math.min(end, Number(first)) - start, 0);
    return {
      life,
      spans,
      total: spans.length ? spans[spans.length - 1].end - spans[0].start : 0,
      byCause,
      work: sum(WORK),
      lost: sum(LOST),
      firstToken,
      ttft: firstToken === null ? null : firstToken - paused,
    };
  }

  /** @param {Life} life @returns {number | null} */
  arrived({ isWhole, at, beginsAt }) {
    if (!isWhole) return null;
    return this.unit === "steps" ? beginsAt : at;
  }

  /** @param {Life} life @returns {Span[]} */
  #spans(life) {
    const steps = this.#steps;
    const arrived = this.arrived(life);
    const end = Math.min(life.endsAt ?? steps.length, steps.length);
    // A request may have been sent before a step ended that the log has before its arrival.
    let first = life.beginsAt;
    while (arrived !== null && first && steps[first - 1].end > arrived) first--;
    /** @type {Span[]} */
    const spans = [];
    let at = 0; // in `life.work`
    for (let index = first; index < end; index++) {
      const step = steps[index];
      while (at < life.work.length && life.work[at].to < step.number) at++;
      const work = life.work[at]?.from <= step.number ? life.work[at] : null;
      const before = index ? steps[index - 1].end : 0;
      let start = arrived === null ? before : Math.max(before, arrived);
      if (arrived === null && !index) start = Math.min(step.begin, step.launched);
      if (start >= step.end) continue;
      const begins = spans.length;
      this.#tile(life, index, work, start, (from, to, cause, about = null) => {
        if (to <= from) return;
        const last = spans[spans.length - 1];
        if (spans.length > begins && last.cause === cause && last.about === about) last.end = to;
        else spans.push({ start: from, end: to, cause, step: step.number, about });
      });
    }
    return spans;
  }

  /** @param {Life} life @param {number} index @param {Work | null} work @param {number} start @param {Emit} emit */
  #tile(life, index, work, start, emit) {
    const step = this.#steps[index];
    if (step.isAfterGap && start < step.begin) {
      emit(start, step.begin, "unknown");
      start = step.begin;
    }
    const launched = Math.max(start, step.launched);
    const ready = Math.max(start, step.ready);
    const computes = work !== null && !work.inVain;
    /** @type {[string, number | null]} */
    const [cause, about] = computes ? ["between_passes", null] : absent(life, step, work);
    this.#cut(start, launched, cause, about, emit);
    if (computes) this.#computed(work, index, launched, ready, emit);
    else emit(launched, ready, cause, about);
    this.#cut(ready, step.end, cause, about, emit);
  }

  /** Emits a time in which no pass ran, and its paused parts. @param {number} start @param {number} end
   * @param {string} cause @param {number | null} about @param {Emit} emit */
  #cut(start, end, cause, about, emit) {
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

  /** @param {Work} work @param {number} index @param {number} start @param {number} end @param {Emit} emit */
  #computed({ again, fresh, isPrefill, isDecode }, index, start, end, emit) {
    const middle = start + Math.floor(((end - start) * again) / (again + fresh));
    emit(start, middle, "recomputed");
    if (!isDecode) return emit(middle, end, isPrefill ? "prefill" : "decode");
    const cut = Math.max(middle, end - this.#others[index]);
    emit(middle, cut, "decode");
    emit(cut, end, "others_prefill");
  }
}

/** @param {Step} step @param {number} index @returns {Step} */
function asUnit(step, index) {
  return { ...step, begin: index, launched: index, ready: index + 1, end: index + 1 };
}

/** Why a request has no row in a step, and which request that is about.
 * @param {Life} life @param {Step} step @param {Work | null} work @returns {[string, number | null]} */
function absent(life, step, work) {
  const away = life.absences.find(({ begin, end }) => begin <= step.number && step.number < end);
  if (away) return ["preempted", away.by];
  if (step.number < life.examined) return ["step_in_progress", null];
  const id = life.parent !== null && step.number <= life.forked ? life.parent : life.id;
  const own = step.skipped?.get(id);
  if (own) return [own, null];
  if (step.failed || work) return ["failed_step", null];
  const isAdmitted = life.admitted !== null && life.admitted <= step.number;
  if (!step.blocked || isAdmitted) return ["unknown", null];
  const [head, reason] = step.blocked;
  return [reason, head === id || FOR_ALL.has(reason) ? null : head];
}

/**
 * Compares each step that decodes and prefills with steps nearby that only decode: see `_infer_others_prefill` in
 * `records.py`.
 *
 * @param {Step[]} steps
 * @returns {Float64Array}
 */
function othersPrefill(steps) {
  /** Indexes of the steps that only decode, by number of decodes. @type {Map<number, number[]>} */
  const alone = new Map();
  for (const [index, { decodes, prefills, failed }] of steps.entries()) {
    if (!decodes || prefills || failed) continue;
    const group = alone.get(decodes);
    if (group) group.push(index);
    else alone.set(decodes, [index]);
  }
  const sizes = [...alone.keys()].sort((a, b) => b - a);
  const others = new Float64Array(steps.length);
  for (const [index, { decodes, prefills, launched, ready }] of steps.entries()) {
    if (!decodes || !prefills || !sizes.length) continue;
    const size = sizes.reduce((best, one) =>
      Math.abs(one - decodes) < Math.abs(best - decodes) ? one : best,
    );
    const group = alone.get(size) ?? [];
    const at = firstAtLeast(group, index);
    const near = group.slice(Math.max(0, at - NEIGHBOURS), at + NEIGHBOURS);
    const took = near.map((one) => steps[one].ready - steps[one].launched).sort((a, b) => a - b);
    others[index] = Math.max(0, ready - launched - took[(took.length - 1) >> 1]);
  }
  return others;
}

/** @param {number[]} values ascending @param {number} limit */
function firstAtLeast(values, limit) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}
