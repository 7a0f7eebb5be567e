/**
 * What each step took: collected while a log is read, for the waterfall; and what of a request's life is counted in
 * finished steps. `visualizer/reading/waterfall/records.py` collects the same.
 */

import { BlockedHeads, Numbers, nameOf, numberOf, PairLists } from "./columns.ts";
import type { Events, Facts, LogEvent } from "./events.ts";
import type { State } from "./fold.ts";
import { Absent, type Lists } from "./indexed_events.ts";
import { PausedTime } from "./paused_time.ts";
import type { RequestSpan, RequestSpans } from "./request_spans.ts";
import { rowKind } from "./request_spans.ts";

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
  skipped: [request: number, reason: string][]; // those that got no tokens
  failed: boolean; // whether its scheduling failed
  isAfterGap: boolean; // whether messages of a foreign log are missing since the step before
}

const COUNTS = ["number", "decodes", "prefills", "failed", "isAfterGap"] as const;
const TIMES = ["begin", "launched", "ready", "end"] as const;
const columns = <Name extends string>(names: readonly Name[]) =>
  Object.fromEntries(names.map((name) => [name, new Numbers()])) as Record<Name, Numbers>;

/** Finished steps, as columns: a long log has a million of them. */
export class StepRecords {
  length = 0;
  counts = columns(COUNTS);
  times = columns(TIMES);
  heads = new BlockedHeads();
  /** By step, the requests that got no tokens, and the numbers of the reasons. */
  skips = new PairLists();

  push(step: Step) {
    for (const name of TIMES) this.times[name].set(this.length, step[name]);
    for (const name of COUNTS) this.counts[name].set(this.length, Number(step[name]));
    if (step.blocked) this.heads.set(this.length, step.blocked);
    const whys = step.skipped.map(([request, why]) => [request, numberOf(why)] as const);
    if (whys.length) this.skips.set(this.length, whys);
    this.length++;
  }

  /** Takes some steps from an index. */
  restore(steps: Facts["finished"]) {
    const from = this.length;
    this.length += steps.number.length;
    for (const name of TIMES) this.times[name].put(from, steps[name] as number[]);
    const { failed, is_after_gap: isAfterGap, number, decodes, prefills } = steps;
    const counts = {
      number,
      decodes,
      prefills,
      failed: failed.map(Number),
      isAfterGap: isAfterGap.map(Number),
    };
    for (const name of COUNTS) this.counts[name].put(from, counts[name]);
    this.heads.put(from, steps.blocked as unknown as Lists);
    this.skips.put(from, steps.skipped as unknown as Lists, numberOf);
  }

  /** Why a request got no tokens. */
  skipped(index: number, id: number) {
    return nameOf(this.skips.at(index).find(([request]) => request === id)?.[1] ?? 0);
  }
}

const MEMORY = new Set(["no_free_blocks", "whole_sequence", "reserved_blocks", "expected_tokens"]);

export class TimeRecords {
  #steps = new StepRecords();
  /** Reads the steps of an index; null: they are read. */
  read?: (() => Promise<void>) | null;
  paused = new PausedTime();
  hasTimes = true;
  spans: RequestSpans;
  #isAfterGap = false;
  /** Scheduled and unfinished steps. */
  #open: Map<number, Step> = new Map();

  constructor(spans: RequestSpans) {
    this.spans = spans;
  }

  /** The finished steps. Throws `Absent` if they are still to be read. */
  get steps() {
    if (this.read) throw new Absent(this.read);
    return this.#steps;
  }

  /** Notes an event that is about to be applied to `state`. */
  before(event: LogEvent, state: State) {
    switch (event.type) {
      case "step_started":
        this.#open.set(event.step, { ...unfinished(event.step), failed: true });
        break;
      case "events_missing":
        this.#isAfterGap = true;
        break;
      case "step_scheduled": {
        const step = this.#open.get(state.step) ?? unfinished(state.step);
        step.failed = false;
        step.blocked = event.blocked ?? null;
        if (event.blocked) this.#blocked(step.number, event.blocked, state);
        step.skipped = event.skipped;
        this.#plan(step, event.rows, state);
        break;
      }
      case "step_finished":
        this.#finish(event, state);
        break;
      case "request_finished":
        // A failed pass ends its requests before the step is finished.
        this.#of(event.request).endsAt = this.steps.length + Number(event.reason === "error");
    }
  }

  /** Notes an event that was applied, after the spans have. */
  after(event: LogEvent, state: State) {
    this.paused.note(event);
    if (event.type === "request_arrived")
      Object.assign(this.#of(event.request), {
        examined: state.step + 1,
        beginsAt: this.steps.length,
      });
    if (event.type === "keyframe")
      for (const [number, rows] of state.plans) this.#plan(unfinished(number), rows, state);
  }

  /** Takes some finished steps from an index. */
  restore(fact: Facts["finished"]) {
    this.#steps.restore(fact);
  }

  /**
   * Notes the first step in which more free blocks would have been enough: memory is checked last. Without
   * preemption, the reserved blocks are checked after the free ones.
   */
  #blocked(step: number, [id, reason, , need, have]: Events["Blocked"], { settings }: State) {
    const span = this.spans.byId.get(id);
    const isLast = reason === "reserved_blocks" || settings.preemption;
    if (span?.shortfall === null && isLast && MEMORY.has(reason))
      span.shortfall = { step, missing: need - have };
  }

  #of(id: number) {
    return this.spans.byId.get(id) as RequestSpan;
  }

  #plan(step: Step, rows: Events["ScheduledRow"][], state: State) {
    this.#open.set(step.number, step);
    for (const row of rows) {
      const request = state.requests.get(row[0]);
      if (!request) continue; // asynchronous scheduling: it ended while its row is computed
      if (rowKind(row, request) === "decode") step.decodes++;
      else step.prefills++;
    }
  }

  #finish(event: Events["step_finished"], state: State) {
    const number = event.step;
    const step = this.#open.get(number) ?? unfinished(number);
    this.#open.delete(number);
    // It failed while the step before is being computed, whose time goes on.
    if (step.failed && this.#open.has(number - 1)) return;
    const { start = NaN, end = NaN, scheduled = end, launched = scheduled } = event.t ?? {};
    Object.assign(step, { begin: start, launched, ready: event.t?.ready ?? end, end });
    if (!(step.decodes + step.prefills)) step.launched = step.ready = end; // there was no pass
    step.isAfterGap = this.#isAfterGap;
    this.#isAfterGap = false;
    if (Number.isNaN(end)) this.hasTimes = false;
    for (const row of event.tokens) {
      const span = this.#of(row[0]);
      if (span.firstToken !== null) continue;
      const { length, prompt_length } = state.request(row[0]);
      if (length === prompt_length) span.firstToken = this.steps.length;
    }
    this.steps.push(step);
  }
}

function unfinished(number: number): Step {
  const times = { begin: NaN, launched: NaN, ready: NaN, end: NaN };
  const nothing = { decodes: 0, prefills: 0, blocked: null, skipped: [] };
  return { number, ...times, ...nothing, failed: false, isAfterGap: false };
}
