/**
 * What each step took and what each request did in it: collected while a log is read, for the waterfall.
 * `visualizer/reading/waterfall/records.py` collects the same.
 *
 * @typedef {object} Step  a finished step; times in microseconds, NaN if the log has none
 * @property {number} number
 * @property {number} begin      when its scheduling began
 * @property {number} launched   when its forward pass began
 * @property {number} ready      when the pass ended
 * @property {number} end        when its tokens were appended
 * @property {number} decodes    rows that decode
 * @property {number} prefills   rows that compute more, also again
 * @property {import("./events.js").Blocked | null} blocked  the head of the queue
 * @property {Map<number, string> | null} skipped  reason of each request that got no tokens
 * @property {boolean} failed    whether its scheduling failed
 * @property {boolean} isAfterGap  whether messages of a foreign log are missing since the step before
 *
 * @typedef {object} Work  rows of a request in the steps `from` to `to`; plain decodes share one
 * @property {number} from
 * @property {number} to
 * @property {number} again   tokens that it had computed before
 * @property {number} fresh   tokens computed for the first time, after those
 * @property {boolean} isPrefill  whether the fresh tokens are
 * @property {boolean} isDecode   whether the whole row is a decode
 * @property {boolean} inVain
 *
 * @typedef {{begin: number, by: number | null, end: number}} Absence
 *   a preemption: away from step `begin` to before step `end`
 *
 * @typedef {object} Life  a request, from its arrival to its end
 * @property {number} id
 * @property {number | null} parent  the request that it forked off; up to step `forked` it was part of it
 * @property {number} forked
 * @property {boolean} isWhole   whether the log has its arrival
 * @property {number | null} at  time of its arrival
 * @property {number} examined   the first step whose scheduling could see it
 * @property {number} beginsAt   number of finished steps when it arrived
 * @property {number | null} endsAt  and when it ended; null: it lives
 * @property {string | null} reason  its finish reason
 * @property {number | null} firstToken  index of the step that gave its first token
 * @property {number | null} admitted    the step in which it was first admitted; 0: before the log begins
 * @property {number | null} found       tokens found in the cache then
 * @property {{adopted: number, source: string}} prefix  how many of these another replica computed
 * @property {{step: number, missing: number} | null} short  the first step in which only memory kept it out, and how
 *   many blocks were missing
 * @property {number} computed   tokens that it has ever computed
 * @property {Work[]} work
 * @property {Absence[]} absences
 */

/** @import * as Events from "./events.js" */
/** @import { LogSource, RequestState, State } from "./fold.js" */
import { PausedTime } from "./paused_time.js";
import { rowKind } from "./rows.js";

const MEMORY = new Set(["no_free_blocks", "whole_sequence", "reserved_blocks"]);

export class TimeRecords {
  /** @type {Step[]} */
  steps = [];
  paused = new PausedTime();
  /** @type {Map<number, Life>} */
  lives = new Map();
  hasTimes = true;
  /** Where a foreign log comes from. @type {LogSource} */
  source = {};
  #isAfterGap = false;
  /** Scheduled and unfinished steps. @type {Map<number, Step>} */
  #open = new Map();

  /** Notes an event that is about to be applied to `state`. @param {Events.LogEvent} event @param {State} state */
  before(event, state) {
    switch (event.type) {
      case "step_started":
        this.#open.set(event.step, { ...unfinished(event.step), failed: true });
        break;
      case "events_missing":
        this.#isAfterGap = true;
        break;
      case "preempted":
        this.#preempted(event, state);
        break;
      case "step_scheduled": {
        const step = this.#open.get(state.step) ?? unfinished(state.step);
        step.failed = false;
        step.blocked = event.blocked ?? null;
        if (event.blocked) this.#blocked(step.number, event.blocked, state);
        if (event.skipped.length) step.skipped = new Map(event.skipped);
        this.#plan(step, event.rows, state);
        break;
      }
      case "step_finished":
        this.#finish(event, state);
        break;
      case "request_finished": {
        const life = this.#of(event.request);
        life.reason = event.reason;
        // A failed pass ends its requests before the step is finished.
        life.endsAt = this.steps.length + Number(event.reason === "error");
      }
    }
  }

  /** Notes an event that was applied. @param {Events.LogEvent} event @param {State} state */
  after(event, state) {
    this.paused.note(event);
    this.source = state.source;
    switch (event.type) {
      case "keyframe":
        this.#rejoin(state);
        break;
      case "request_arrived":
        this.#meet(state.request(event.request), state, event.t?.at ?? null);
        break;
      case "forked":
        this.#fork(event, state);
        break;
      case "admitted": {
        const life = this.#of(event.request);
        const away = life.absences.at(-1);
        if (away?.end === Infinity) away.end = state.step;
        life.admitted ??= state.step;
        if (event.resumed) break;
        life.found = event.blocks.length * state.blockSize;
        life.prefix = state.adoptedPrefix(event.node);
        break;
      }
    }
  }

  /**
   * Notes the first step in which more free blocks would have been enough: memory is checked last. Without
   * preemption, the reserved blocks are checked after the free ones.
   *
   * @param {number} step @param {Events.Blocked} blocked @param {State} state
   */
  #blocked(step, [id, reason, , need, have], { settings }) {
    const life = this.lives.get(id);
    const isLast = reason === "reserved_blocks" || settings.preemption;
    if (life?.short === null && isLast && MEMORY.has(reason))
      life.short = { step, missing: need - have };
  }

  /** @param {number} id @returns {Life} */
  #of(id) {
    return /** @type {Life} */ (this.lives.get(id));
  }

  /** @param {RequestState} request @param {State} state @param {number | null} at @returns {Life} */
  #meet({ id }, state, at) {
    /** @type {Life} */
    const life = {
      id,
      parent: null,
      forked: 0,
      isWhole: true,
      at,
      examined: state.step + 1,
      beginsAt: this.steps.length,
      endsAt: null,
      reason: null,
      short: null,
      firstToken: null,
      admitted: null,
      found: null,
      prefix: { adopted: 0, source: "" },
      computed: 0,
      work: [],
      absences: [],
    };
    this.lives.set(id, life);
    return life;
  }

  /** Begins with a keyframe: the past of its requests is not known. @param {State} state */
  #rejoin(state) {
    for (const request of state.requests.list()) {
      const { length, promptLength, computed, place, preemptions } = request;
      const life = this.#meet(request, state, null);
      life.isWhole = false;
      life.examined = 0;
      life.computed = length > promptLength ? length - 1 : computed;
      if (place === null || preemptions) life.admitted = 0;
      if (place !== null && preemptions) life.absences.push({ begin: 0, by: null, end: Infinity });
    }
    // With asynchronous scheduling, a request may have ended while its row is computed.
    for (const [number, rows] of state.plans) {
      const live = rows.filter(([id]) => this.lives.has(id));
      this.#plan(unfinished(number), live, state);
    }
  }

  /** @param {Events.Forked} event @param {State} state */
  #fork(event, state) {
    const parent = this.#of(event.parent);
    const life = this.#meet(state.request(event.request), state, parent.at);
    const { isWhole, examined, beginsAt, admitted, found, prefix, computed } = parent;
    Object.assign(life, { parent: parent.id, forked: state.step });
    Object.assign(life, { isWhole, examined, beginsAt, admitted, found, prefix, computed });
    life.work = parent.work.map((work) => ({ ...work }));
    life.absences = [...parent.absences];
  }

  /** @param {Events.Preempted} event @param {State} state */
  #preempted({ request: id, needed_by: by }, state) {
    const life = this.#of(id);
    const rows = [...state.plans.values()].flat().filter(([request]) => request === id);
    const ends = rows.map(([, start, count, drafts]) => start + count - drafts.length);
    life.computed = Math.max(life.computed, state.request(id).computed, ...ends);
    // A foreign log may not say what needed the blocks.
    life.absences.push({ begin: state.step, by: by < 0 ? null : by, end: Infinity });
  }

  /** @param {Step} step @param {Events.ScheduledRow[]} rows @param {State} state */
  #plan(step, rows, state) {
    this.#open.set(step.number, step);
    for (const row of rows) {
      const life = this.#of(row[0]);
      const work = workOf(row, state.request(row[0]), life.computed, step.number);
      const last = life.work.at(-1);
      const goesOn = last?.to === step.number - 1 && isPlain(last) && isPlain(work);
      if (goesOn) last.to = step.number;
      else life.work.push(work);
      if (work.isDecode) step.decodes++;
      else step.prefills++;
    }
  }

  /** @param {Events.StepFinished} event @param {State} state */
  #finish(event, state) {
    const number = event.step ?? state.step; // without it, the one that started last
    const step = this.#open.get(number) ?? unfinished(number);
    this.#open.delete(number);
    for (const id of event.wasted ?? [])
      if (state.requests.get(id)) markInVain(this.#of(id).work, number);
    // It failed while the step before is being computed, whose time goes on.
    for (const other of this.#open.keys()) if (other < number) return;
    const { start = NaN, end = NaN, scheduled = end, launched = scheduled } = event.t ?? {};
    Object.assign(step, { begin: start, launched, ready: event.t?.ready ?? end, end });
    if (!(step.decodes + step.prefills)) step.launched = step.ready = end; // there was no pass
    step.isAfterGap = this.#isAfterGap;
    this.#isAfterGap = false;
    if (Number.isNaN(end)) this.hasTimes = false;
    for (const row of event.tokens) {
      const life = this.#of(row[0]);
      if (life.firstToken !== null) continue;
      const { length, promptLength } = state.request(row[0]);
      if (length === promptLength) life.firstToken = this.steps.length;
    }
    this.steps.push(step);
  }
}

/** @param {number} number @returns {Step} */
function unfinished(number) {
  const times = { begin: NaN, launched: NaN, ready: NaN, end: NaN };
  const nothing = { decodes: 0, prefills: 0, blocked: null, skipped: null };
  return { number, ...times, ...nothing, failed: false, isAfterGap: false };
}

/** @param {Work} work */
function isPlain({ again, fresh, isDecode, inVain }) {
  return isDecode && again === 0 && fresh === 1 && !inVain;
}

/**
 * @param {Events.ScheduledRow} row
 * @param {RequestState} request
 * @param {number} computed
 * @param {number} step
 * @returns {Work}
 */
function workOf(row, request, computed, step) {
  const start = row[1];
  const tokens = row[2] - (row[3]?.length ?? 0);
  const end = start + tokens;
  const again = Math.max(0, Math.min(end, computed) - start);
  const fresh = tokens - again;
  const reachesLast = start + again >= request.promptLength && end >= request.length;
  return {
    from: step,
    to: step,
    again,
    fresh,
    isPrefill: !(reachesLast && fresh === 1),
    isDecode: rowKind(row, request) === "decode",
    inVain: false,
  };
}

/** Marks a row that was computed in vain, or not at all. @param {Work[]} work @param {number} step */
function markInVain(work, step) {
  const at = work.findLastIndex(({ from, to }) => from <= step && step <= to);
  if (at < 0) return;
  const found = work[at];
  const parts = [
    { ...found, to: step - 1 },
    { ...found, from: step, to: step, inVain: true },
    { ...found, from: step + 1 },
  ];
  work.splice(at, 1, ...parts.filter(({ from, to }) => from <= to));
}
