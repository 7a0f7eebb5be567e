/**
 * What each step took and what each request did in it: collected while a log is read, for the waterfall.
 * `visualizer/reading/waterfall/records.py` collects the same.
 */

import type { Events, LogEvent } from "./events.ts";
import type { RequestState, State } from "./fold.ts";
import { PausedTime } from "./paused_time.ts";
import { rowKind } from "./rows.ts";

/** a finished step; times in microseconds, NaN if the log has none */
export interface Step {
  number: number;
  begin: number; // when its scheduling began
  launched: number; // when its forward pass began
  ready: number; // when the pass ended
  end: number; // when its tokens were appended
  decodes: number; // rows that decode
  prefills: number; // rows that compute more, also again
  blocked: Events["Blocked"] | null; // the head of the queue
  skipped: Map<number, string> | null; // reason of each request that got no tokens
  failed: boolean; // whether its scheduling failed
  isAfterGap: boolean; // whether messages of a foreign log are missing since the step before
}

/** rows of a request in the steps `from` to `to`; plain decodes share one */
export interface Work {
  from: number;
  to: number;
  again: number; // tokens that it had computed before
  fresh: number; // tokens computed for the first time, after those
  isPrefill: boolean; // whether the fresh tokens are
  isDecode: boolean; // whether the whole row is a decode
  inVain: boolean;
}

/** a preemption: away from step `begin` to before step `end` */
type Absence = { begin: number; by: number | null; end: number };

/** a request, from its arrival to its end */
export interface Life {
  id: number;
  parent: number | null; // the request that it forked off; up to step `forked` it was part of it
  forked: number;
  isWhole: boolean; // whether the log has its arrival
  at: number | null; // time of its arrival
  examined: number; // the first step whose scheduling could see it
  beginsAt: number; // number of finished steps when it arrived
  endsAt: number | null; // and when it ended; null: it lives
  reason: string | null; // its finish reason
  firstToken: number | null; // index of the step that gave its first token
  admitted: number | null; // the step in which it was first admitted; 0: before the log begins
  found: number | null; // tokens found in the cache then
  prefix: { adopted: number; source: string }; // how many of these another replica computed
  /**
   * the first step in which only memory kept it out, and how
   * many blocks were missing
   */
  short: { step: number; missing: number } | null;
  computed: number; // tokens that it has ever computed
  work: Work[];
  absences: Absence[];
}

const MEMORY = new Set(["no_free_blocks", "whole_sequence", "reserved_blocks"]);

export class TimeRecords {
  steps: Step[] = [];
  paused = new PausedTime();
  lives: Map<number, Life> = new Map();
  hasTimes = true;
  #isAfterGap = false;
  /** Scheduled and unfinished steps. */
  #open: Map<number, Step> = new Map();

  /** Notes an event that is about to be applied to `state`. */
  before(event: LogEvent, state: State) {
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

  /** Notes an event that was applied. */
  after(event: LogEvent, state: State) {
    this.paused.note(event);
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
   */
  #blocked(step: number, [id, reason, , need, have]: Events["Blocked"], { settings }: State) {
    const life = this.lives.get(id);
    const isLast = reason === "reserved_blocks" || settings.preemption;
    if (life?.short === null && isLast && MEMORY.has(reason))
      life.short = { step, missing: need - have };
  }

  #of(id: number): Life {
    return this.lives.get(id) as Life;
  }

  #meet({ id }: RequestState, state: State, at: number | null): Life {
    const life: Life = {
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

  /** Begins with a keyframe: the past of its requests is not known. */
  #rejoin(state: State) {
    for (const request of state.requests.list()) {
      const { length, place, preemptions } = request;
      const life = this.#meet(request, state, null);
      life.isWhole = false;
      life.examined = 0;
      life.computed = length > request.prompt_length ? length - 1 : request.num_computed_tokens;
      if (place === null || preemptions) life.admitted = 0;
      if (place !== null && preemptions) life.absences.push({ begin: 0, by: null, end: Infinity });
    }
    // With asynchronous scheduling, a request may have ended while its row is computed.
    for (const [number, rows] of state.plans) {
      const live = rows.filter(([id]) => this.lives.has(id));
      this.#plan(unfinished(number), live, state);
    }
  }

  #fork(event: Events["forked"], state: State) {
    const parent = this.#of(event.parent);
    const life = this.#meet(state.request(event.request), state, parent.at);
    const { isWhole, examined, beginsAt, admitted, found, prefix, computed } = parent;
    Object.assign(life, { parent: parent.id, forked: state.step });
    Object.assign(life, { isWhole, examined, beginsAt, admitted, found, prefix, computed });
    life.work = parent.work.map((work) => ({ ...work }));
    life.absences = [...parent.absences];
  }

  #preempted({ request: id, needed_by: by }: Events["preempted"], state: State) {
    const life = this.#of(id);
    const rows = [...state.plans.values()].flat().filter(([request]) => request === id);
    const ends = rows.map(([, start, count, drafts]) => start + count - drafts.length);
    life.computed = Math.max(life.computed, state.request(id).num_computed_tokens, ...ends);
    // A foreign log may not say what needed the blocks.
    life.absences.push({ begin: state.step, by: by < 0 ? null : by, end: Infinity });
  }

  #plan(step: Step, rows: Events["ScheduledRow"][], state: State) {
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

  #finish(event: Events["step_finished"], state: State) {
    const number = event.step;
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
      const { length, prompt_length } = state.request(row[0]);
      if (length === prompt_length) life.firstToken = this.steps.length;
    }
    this.steps.push(step);
  }
}

function unfinished(number: number): Step {
  const times = { begin: NaN, launched: NaN, ready: NaN, end: NaN };
  const nothing = { decodes: 0, prefills: 0, blocked: null, skipped: null };
  return { number, ...times, ...nothing, failed: false, isAfterGap: false };
}

function isPlain({ again, fresh, isDecode, inVain }: Work) {
  return isDecode && again === 0 && fresh === 1 && !inVain;
}

function workOf(
  row: Events["ScheduledRow"],
  request: RequestState,
  computed: number,
  step: number,
): Work {
  const start = row[1];
  const tokens = row[2] - (row[3]?.length ?? 0);
  const end = start + tokens;
  const again = Math.max(0, Math.min(end, computed) - start);
  const fresh = tokens - again;
  const reachesLast = start + again >= request.prompt_length && end >= request.length;
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

/** Marks a row that was computed in vain, or not at all. */
function markInVain(work: Work[], step: number) {
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
