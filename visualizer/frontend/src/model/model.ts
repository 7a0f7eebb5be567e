/**
 * A log prepared for display: the frame of any step, the span of each request, measures per step.
 *
 * One pass over the events cuts them into steps, keeps a copy of the folded state about every thousand
 * events, and collects request spans and measures; of the events only their lines are kept. `frame(step)`
 * then starts from the nearest copy and parses what it folds. `read` and `append` continue where the pass
 * ended, so long files that arrive in pieces and live logs work like short files.
 *
 * A step ends with its commit. Events between two steps (an arrival, an abort, a cleared cache) belong to the
 * later one.
 */

import { firstWhere, keep } from "./columns.ts";
import type { Events, Facts, LogEvent } from "./events.ts";
import { unpacked } from "./expert_loads.ts";
import { type LogSource, State } from "./fold.ts";
import { Frame } from "./frame.ts";
import { StepHappenings } from "./happenings.ts";
import { IndexedEvents, type Lists, type Unpack, unpackFacts } from "./indexed_events.ts";
import { LogLines } from "./lines.ts";
import { LogError } from "./log.ts";
import { type Chunk, type MeasureColumns, Measures, NOTHING } from "./measures.ts";
import { type Details, type RequestSpan, RequestSpans, rowKind } from "./request_spans.ts";
import { type Status, type StepInfo, StepTable } from "./step_table.ts";
import { TimeRecords } from "./time_records.ts";
import { Heads } from "./waits.ts";
import { Waterfall } from "./waterfall.ts";
import type { Span } from "./words.ts";

/** Events between two kept copies of the state: at most as many as between two states of an indexed log. */
const KEYFRAME_EVERY = 1024;
/** Fewer at first: a short log has several copies, too. */
const untilCopy = (seq: number) => Math.min(Math.max(128, seq >> 4), KEYFRAME_EVERY);
/** Cached frames, because all panels ask for the same one. */
const FRAMES_KEPT = 4;

export class Model {
  #live = new State();
  #requestSpans;
  #heads = new Heads();
  #times: TimeRecords;
  /** The waterfall of the events so far. */
  #waterfall: Waterfall | null = null;
  #copies: State[] = [];
  /** The first event after which another copy is due. */
  #nextCopy = untilCopy(0);
  /** The state that was asked for last, because the next one is often one step later. */
  #cursor: State | null = null;
  #frames: Map<number, Frame> = new Map();
  /** The sums of the open step so far. */
  #sums = { ...NOTHING };
  #chunks: Chunk[] = [];
  #happenings = new StepHappenings();
  /** The log's lines, parsed when events are asked for; the chunks of an indexed log take their place. */
  #lines = new LogLines();
  #indexed: IndexedEvents | null = null;
  #details: Details | null = null;
  /** The parts of `#details` that the last state of the index needs, by its first event. */
  #needed: { first: number; parts: Set<number> } | null = null;
  /** Whether all of the log is known, because an index says it. */
  knowsAll = false;
  firstSeq = 0;
  #steps = new StepTable();
  measures = new Measures() as Measures & MeasureColumns;
  /** The last step before a log that begins with a keyframe; 0 for the log of a whole run. */
  stepsBefore = 0;
  /** The class of each replaceable part. */
  classes: Record<string, string> = {};
  /** Messages that a foreign log's source lost, by step. */
  gaps: Map<number, Events["events_missing"][]> = new Map();
  /** Where a foreign log comes from; empty for an engine of ours. */
  source: LogSource = {};
  /** The fields of run_started, if the log begins with it. */
  info: { model?: any; tokenizer?: any } = {};

  /** `firstLane` is the number of its first lane, whose mark it has. */
  constructor(events: LogEvent[] = [], firstLane: number = 0) {
    this.#requestSpans = new RequestSpans(firstLane);
    this.#times = new TimeRecords(this.#requestSpans);
    this.append(events);
  }

  /** Appends events of the same log. */
  append(events: LogEvent[]) {
    this.#lines.add(events);
    this.#pass(() => events.forEach((event) => this.#take(event)));
  }

  /**
   * Reads more bytes of the same log, cut anywhere. Throws a `LogError` with the number of an invalid line; the
   * events before it stay.
   */
  read(bytes: Uint8Array) {
    this.#pass(() => this.#lines.push(bytes, (event) => this.#takeLine(event)));
  }

  /**
   * Reads the next chunk of an indexed log, unpacked. Throws a `LogError` with the number of an invalid event; the events
   * before it stay. `unpack` is not needed for the log of an engine.
   */
  readChunk(bytes: Uint8Array, unpack?: Unpack) {
    this.#indexed ??= new IndexedEvents();
    const events = this.#indexed.push(bytes, unpack);
    this.#pass(() => events.forEach((event) => this.#take(event)));
  }

  /**
   * Takes a part of what an index knows of a log, in place of a pass over its events. `restored` follows when its steps and
   * requests are taken.
   *
   * @param part the number of the part, of which `details` has the rest
   */
  restore(bytes: Uint8Array, details?: Details, part: number = 0) {
    for (const fact of unpackFacts(bytes)) {
      if (fact.type === "steps") this.#restoreSteps(fact);
      else if (fact.type === "finished") this.#times.restore(fact);
      else if (fact.type === "request")
        this.#requestSpans.restore(fact as any, details as Details, part);
      else this.#restoreRun(fact as Facts["run"]);
    }
  }

  /**
   * @param events of the whole log; those that are looked at are read before, by `fetch`
   * @param readPasses reads the finished steps, which few questions need
   */
  restored(events: IndexedEvents, details: Details, readPasses: () => Promise<void>) {
    this.#indexed = events;
    this.#details = details;
    let reading: Promise<void> | null = null;
    this.#times.read = () =>
      (reading ??= readPasses().then(() => {
        this.#times.read = null;
      }));
    this.knowsAll = true;
    this.#requestSpans.named();
  }

  /** If an index says them: percentiles of the times between tokens. */
  itl: [name: string, value: number][] | null = null;

  #restoreSteps(fact: Facts["steps"]) {
    this.#steps.restore(fact);
    for (const [i, missing] of (fact.missing as unknown as Lists).rows())
      this.gaps.set(fact.step[i], missing);
    this.measures.firstStep = this.firstStep;
    this.measures.restore(fact);
    this.#heads.restore(fact);
  }

  #restoreRun({ settings, classes, source, model, tokenizer, causes, ...run }: Facts["run"]) {
    const live = this.#live;
    Object.assign(live, { settings, expertLoads: unpacked(run.expert_loads) });
    Object.assign(this, {
      classes,
      source,
      firstSeq: run.first_seq,
      stepsBefore: run.steps_before,
    });
    if (model && tokenizer) this.info = { model, tokenizer };
    this.itl = run.itl;
    this.#heads.causes = new Set(causes);
    this.#times.hasTimes = run.has_times;
    this.#times.paused.intervals = run.pauses.map(([begin, end]) => ({ begin, end }));
  }

  /** Ends the log: a last line without a line break counts if it is complete. */
  end() {
    this.#pass(() => this.#lines.end((event) => this.#takeLine(event)));
  }

  #pass(take: () => void) {
    this.#frames.clear();
    this.#waterfall = null;
    try {
      take();
    } finally {
      this.#record();
    }
  }

  /** The log's events, which become objects when they are asked for. */
  get events(): LogLines | IndexedEvents {
    return this.#indexed ?? this.#lines;
  }

  get settings() {
    return this.#live.settings;
  }

  /** How many tokens each expert has computed in the whole log; empty: there are no experts. */
  get expertLoads() {
    return this.#live.expertLoads;
  }

  get firstStep() {
    return this.#steps.first;
  }

  get lastStep() {
    return this.firstStep + this.stepCount - 1;
  }

  get stepCount() {
    return this.#steps.length;
  }

  /** All requests in the order in which they appear in the log. */
  get requests(): RequestSpan[] {
    return this.#requestSpans.list;
  }

  request(id: number | null | undefined) {
    return this.#requestSpans.byId.get(id as number);
  }

  /** The same; throws if there is no such request. */
  requestSpan(id: number) {
    const span = this.request(id);
    if (!span) throw new RangeError(`there is no request ${id}`);
    return span;
  }

  /**
   * A request's lane at the end of a step, also after the request has ended; null before its first admission. At most
   * one live request has a lane. `laneCount` is the number of lanes that the log has needed so far.
   */
  laneOf(id: number | null | undefined, step: number = Infinity) {
    const span = this.request(id);
    return span && span.lanedAt <= step ? span.lane : null;
  }

  get firstLane() {
    return this.#requestSpans.firstLane;
  }

  get laneCount() {
    return this.#requestSpans.laneCount;
  }

  /** A request's name as a span. */
  tag(id: number | null): Span {
    return { text: this.request(id)?.name ?? `r${id}`, request: Number(id) };
  }

  stepInfo(step: number): StepInfo {
    const info = this.#steps.at(step - this.firstStep);
    if (!info) {
      throw new RangeError(`there is no step ${step}: ${this.firstStep} to ${this.lastStep}`);
    }
    return info;
  }

  event(seq: number) {
    return this.events.at(seq - this.firstSeq);
  }

  /** Events by number, the last one included. */
  eventsIn(from: number, to: number): any[] {
    return this.events.range(from - this.firstSeq, to + 1 - this.firstSeq);
  }

  /** The step an event belongs to. */
  stepOf(seq: number) {
    return this.firstStep + Math.max(0, this.#steps.indexOf(seq));
  }

  /** Calls `told` when events cannot be read that are needed. */
  onDamage(told: () => void) {
    if (this.#indexed) this.#indexed.damaged = told;
    for (const events of this.#details ?? []) events.damaged = told;
  }

  /** Reads what the frame of a step needs, and the tokens of a request, and is not there yet; null: nothing. */
  fetch(step: number, selected: number | null = null): Promise<unknown> | null {
    const { from, to } = this.stepInfo(step);
    const first = step > this.firstStep ? from : this.firstSeq;
    const reading = this.#indexed?.fetch(first - this.firstSeq, to - this.firstSeq);
    if (reading) return reading.then(() => this.#fetchDetails(step, selected));
    return this.#fetchDetails(step, selected);
  }

  /** Reads the tokens of requests and nodes that live in a step. */
  #fetchDetails(step: number, selected: number | null) {
    const indexed = this.#indexed;
    if (!indexed || !this.#details) return null;
    const saved = indexed.stateBefore(this.stepInfo(step).from - this.firstSeq);
    const first = saved?.first ?? 0;
    if (this.#needed?.first !== first) {
      const [fact] = saved ? (unpackFacts(saved.bytes()) as Facts["slice"][]) : [];
      const ids = [...(fact?.requests ?? []), ...(fact?.nodes ?? []).map((node) => [node[4]])];
      const parts = new Set(ids.flatMap(([id]) => this.request(id as number)?.part ?? []));
      this.#needed = { first, parts };
    }
    const parts = new Set(this.#needed.parts);
    const { requests } = this;
    const begin = this.stepOf(this.firstSeq + first);
    let at = firstWhere(requests.length, (index) => requests[index].appeared >= begin);
    for (; at < requests.length && requests[at].appeared <= step; at++)
      parts.add(requests[at].part as number);
    parts.add(this.request(selected)?.part ?? 0);
    const readings = this.#details.map((events) => events.fetchEach(parts)).filter(Boolean);
    return readings.length ? Promise.all(readings) : null;
  }

  async fetchAll() {
    await this.#indexed?.fetchAll();
    for (const events of this.#details ?? []) await events.fetchAll();
    await this.#times.read?.();
  }

  /** Everything panels need for one step. Throws `Absent` unless its events are there. */
  frame(step: number): Frame {
    const kept = this.#frames.get(step);
    if (kept) return kept;
    const info = this.stepInfo(step);
    const frame = new Frame(this, info, this.#stateBeforeStep(step));
    return keep(this.#frames, step, frame, FRAMES_KEPT);
  }

  /** The state at the end of a step, a copy of its own. */
  stateAt(step: number): State {
    const { to } = this.stepInfo(step);
    const state = this.#nearest(to);
    this.#cursor = null; // where tokens are absent, the state stays half done
    for (const event of this.eventsIn(state.seq + 1, to)) state.apply(event);
    this.#cursor = state;
    return state.copy();
  }

  /** A state of its own from which to fold on to an event: the last one known before. */
  #nearest(to: number) {
    const copies = this.#copies;
    const copy = copies[firstWhere(copies.length, (index) => copies[index].seq > to) - 1];
    const saved = this.#indexed?.stateBefore(to + 1 - this.firstSeq);
    const least = saved ? this.firstSeq + saved.first - 1 : (copy?.seq ?? -1);
    const cursor = this.#cursor;
    if (cursor && cursor.seq <= to && cursor.seq >= least) return cursor;
    if (!saved) return copy?.copy() ?? this.#start();
    const state = new State();
    const [fact] = unpackFacts(saved.bytes()) as Facts["slice"][];
    state.restore(fact, (id) => this.requestSpan(id));
    return state;
  }

  /** The state just before an event, a copy of its own. */
  stateBefore(seq: number): State {
    const step = this.stepOf(seq);
    const state = this.#stateBeforeStep(step);
    for (const event of this.eventsIn(this.stepInfo(step).from, seq - 1)) state.apply(event);
    return state;
  }

  /** Why a request waited in a step: `{reason, head}`. */
  waitAt(step: number, id: number) {
    return this.#heads.waitAt(step, id);
  }

  /** Why requests waited in a step: the head, its reason, and how many others the policy deferred. */
  waitIn(step: number) {
    return this.#heads.inStep(step);
  }

  /** The causes for which requests have waited so far. */
  get waitCauses() {
    return this.#heads.causes;
  }

  /** The time in which the engine was paused and no forward pass ran. */
  get paused() {
    return this.#times.paused;
  }

  /** Where each request's time went. */
  get waterfall() {
    this.#waterfall ??= new Waterfall(this.#times);
    return this.#waterfall;
  }

  #stateBeforeStep(step: number) {
    return step > this.firstStep ? this.stateAt(step - 1) : this.#start();
  }

  /** The state before the first step's events. */
  #start() {
    const state = new State();
    for (const event of this.eventsIn(this.firstSeq, this.stepInfo(this.firstStep).from - 1))
      state.apply(event);
    return state;
  }

  // The pass over the events

  /** Takes an event of a file; an error names its line. */
  #takeLine(event: LogEvent) {
    try {
      this.#take(event);
    } catch (error) {
      const { reason, seq } = error as LogError;
      throw new LogError(reason, { seq, line: this.#lines.lineOf(Number(seq) - this.firstSeq) });
    }
  }

  #take(event: LogEvent) {
    const { type } = event;
    const seq = type === "keyframe" ? event.seq : this.#live.seq + 1;
    try {
      if (this.#beginsStep(event)) this.#open(event);
      const info = this.#steps.last;
      const step = info?.step ?? 0;
      this.#requestSpans.note(event, step, this.#live, info?.status !== "pending");
      if (type === "step_scheduled") this.#heads.note(event, step, this.#live);
      if (type === "events_missing") this.gaps.set(step, [...(this.gaps.get(step) ?? []), event]);
      this.#sum(event);
      this.#times.before(event, this.#live);
      this.#live.apply(event);
      if (type === "run_started" || type === "keyframe") {
        this.classes = this.#live.classes;
        this.source = this.#live.source;
      }
      if (type === "run_started") {
        this.info = { model: event.model, tokenizer: event.tokenizer };
      }
      if (type === "keyframe") {
        this.firstSeq = seq;
        this.#nextCopy = seq + untilCopy(this.#live.seq);
        this.stepsBefore = this.#live.step;
        this.#join();
      }
      if (type === "request_arrived" || type === "forked" || type === "admitted")
        this.#requestSpans.meet(event, step, this.#live);
      this.#times.after(event, this.#live);
      if (!info) return;
      info.to = seq;
      if (type === "step_started") info.status = "running";
      if (type === "step_scheduled") info.scheduled = seq;
      // A pending step has not begun: the finished one is the step before, with asynchronous scheduling.
      if (type === "step_finished" && info.status !== "pending") info.status = "finished";
    } catch (error) {
      const known = error instanceof LogError;
      throw new LogError(known ? error.reason : `${type} does not fit what came before`, { seq });
    }
  }

  #beginsStep(event: LogEvent) {
    const { type } = event;
    const info = this.#steps.last;
    if (type === "run_started" || type === "keyframe") {
      if (this.#live.seq >= 0) throw new LogError(`${type} can only be the first event`);
      return false;
    }
    if (type === "step_started") return info?.status !== "pending" || info.step !== event.step;
    if (!info)
      return type !== "engine_paused" && type !== "engine_resumed" && type !== "events_missing";
    const between =
      type === "request_arrived" ||
      (type === "request_finished" && event.reason === "abort") ||
      ((type === "radix_evicted" || type === "block_evicted") && event.reason === "cleared");
    // An asynchronous step is scheduled before the one before it finishes. A cleared cache is not a sign:
    // a failed forward pass clears it, too.
    const isAhead =
      this.#live.settings.async_scheduling && info.scheduled !== null && info.status !== "pending";
    if (isAhead && (type === "request_arrived" || type === "request_finished")) return between;
    const over =
      info.status === "finished" || (info.status === "joined" && !this.#live.plan.length);
    return between && over;
  }

  #open(event: LogEvent) {
    const last = this.#steps.last;
    const next = (last?.step ?? this.#live.step) + 1;
    const step = event.type === "step_started" ? event.step : next;
    if (last && step !== next) throw new LogError(`step ${step} follows step ${last.step}`);
    this.#record();
    if (last && this.#live.seq >= this.#nextCopy) {
      this.#copies.push(this.#live.copy());
      this.#nextCopy = this.#live.seq + untilCopy(this.#live.seq);
    }
    this.#addStep(step, "pending");
  }

  /** Starts from a keyframe, whose step has finished or is running. */
  #join() {
    const { step, requests } = this.#live;
    if (step) this.#addStep(step, "joined");
    else if (requests.list().length) this.#addStep(1, "pending");
    this.#requestSpans.rejoin(Math.max(1, step), this.#live);
  }

  #addStep(step: number, status: Status) {
    const { seq } = this.#live;
    this.#steps.push({ step, from: seq + 1, to: seq, status, scheduled: null });
    this.measures.firstStep = this.firstStep;
    this.#sums = { ...NOTHING };
    this.#chunks = [];
    this.#happenings = new StepHappenings();
  }

  /** Adds an event that is about to be applied to the open step's measures. */
  #sum(event: LogEvent) {
    const sums = this.#sums;
    this.#happenings.note(event, this.#live);
    switch (event.type) {
      case "admitted":
        sums.found += event.blocks.length * this.#live.blockSize;
        break;
      case "blocks_moved":
        if (event.target === "gpu")
          sums[event.source as "host"] += event.slots.length * this.#live.blockSize;
        break;
      case "preempted":
        sums.preempted++;
        break;
      case "radix_evicted":
        sums.evicted += this.#live.node(event.node).blocks.length;
        break;
      case "block_evicted":
        sums.evicted++;
        break;
      case "step_scheduled":
        sums.seats += this.#live.seats;
        this.#noteComputed(this.#live.step, this.#live.step - 1);
        for (const row of event.rows) {
          const request = row[0];
          const count = row[2];
          const kind = rowKind(row, this.#live.request(request));
          sums.rows++;
          sums.tokens += count;
          sums[kind] += count;
          const drafts = row[3]?.length ?? 0;
          sums.drafted += drafts;
          sums.guessing += Number(drafts > 0);
          if (kind !== "decode") this.#chunks.push({ request, count });
        }
        break;
      case "step_reported":
        sums.rows += event.prefills + event.decodes;
        sums.tokens += event.prefill_tokens + event.decodes;
        sums.prefill += event.prefill_tokens;
        sums.decode += event.decodes;
        break;
      case "step_finished":
        for (const [, ids, , accepted = 0] of event.tokens) {
          sums.output += ids.length;
          sums.accepted += accepted;
        }
        this.#time(event);
    }
  }

  /** Notes the times of a step that finished: the open one or, with asynchronous scheduling, the one before. */
  #time({ step = this.#live.step, t = {} }: Events["step_finished"]) {
    const { start = NaN, scheduled = NaN, launched = NaN, ready = NaN, end = NaN } = t;
    const own = { start, scheduled, launched, ready };
    const open = this.#steps.last?.step ?? step;
    if (step < open) this.measures.setTimes(step, own);
    else Object.assign(this.#sums, own);
    this.#sums.end = end;
    this.#sums.drafting = t.draft_us ?? NaN;
    const isDropped = !Number.isNaN(start) && Number.isNaN(launched); // the pass before it failed
    if (!isDropped) this.#noteComputed(open, step);
  }

  /** Notes that `pass` was computed while `step` was scheduled, if the log has asynchronous scheduling. */
  #noteComputed(step: number, pass: number) {
    const { settings, plans } = this.#live;
    if (settings.async_scheduling && plans.get(pass)?.length) this.measures.addComputed(step, pass);
  }

  #record() {
    const info = this.#steps.last;
    if (!info) return;
    const { counts, running, reach, waitingCount, suspendedCount } = this.#live;
    const { unshared, ...others } = counts;
    Object.assign(this.#sums, others, {
      used: unshared + counts.shared,
      waiting: waitingCount,
      running: running.length,
      happened: this.#happenings.bits(this.#live),
      suspended: suspendedCount,
      reach,
    });
    this.measures.record(info.step, this.#sums, this.#chunks);
  }
}
