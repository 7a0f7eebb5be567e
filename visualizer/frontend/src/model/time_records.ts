/**
 * What each step took: collected while a log is read, for the waterfall; and what of a request's life is counted in
 * finished steps. `visualizer/reading/waterfall/records.py` collects the same.
 */

import type { Events, Facts, LogEvent } from "./events.ts";
import type { State } from "./fold.ts";
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
  skipped: Map<number, string> | null; // reason of each request that got no tokens
  failed: boolean; // whether its scheduling failed
  isAfterGap: boolean; // whether messages of a foreign log are missing since the step before
}

const MEMORY = new Set(["no_free_blocks", "whole_sequence", "reserved_blocks", "expected_tokens"]);

export class TimeRecords {
  steps: Step[] = [];
  paused = new PausedTime();
  hasTimes = true;
  spans: RequestSpans;
  #isAfterGap = false;
  /** Scheduled and unfinished steps. */
  #open: Map<number, Step> = new Map();

  constructor(spans: RequestSpans) {
    this.spans = spans;
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
        if (event.skipped.length) step.skipped = new Map(event.skipped);
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
  restore({ number, decodes, prefills, blocked, skipped, failed, ...fact }: Facts["finished"]) {
    for (let i = 0; i < number.length; i++)
      this.steps.push({
        number: number[i],
        begin: fact.begin[i] as number,
        launched: fact.launched[i] as number,
        ready: fact.ready[i] as number,
        end: fact.end[i] as number,
        decodes: decodes[i],
        prefills: prefills[i],
        blocked: blocked[i],
        skipped: skipped[i].length ? new Map(skipped[i]) : null,
        failed: failed[i],
        isAfterGap: fact.is_after_gap[i],
      });
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
  const nothing = { decodes: 0, prefills: 0, blocked: null, skipped: null };
  return { number, ...times, ...nothing, failed: false, isAfterGap: false };
}
