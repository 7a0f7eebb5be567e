/**
 * One replica of a cluster: when it was there, and its runs. Each run is a part of its log as a `Model`, with its place
 * on the cluster's clock. Times in microseconds since the gateway started.
 */

import type { Axis } from "../drawing/time_axis.ts";
import { wallAxis } from "../drawing/wall_axis.ts";
import type { LogEvent } from "../model/events.ts";
import { LogError, Model } from "../model/index.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { eventsOf } from "./cluster_chunk.ts";
import type { ReplicaJoined } from "./cluster_lines.ts";

const CLOCK_ERROR = 5000; // us by which a replica's time may be off
const encoder = new TextEncoder();

/** A time in which a replica was there, or in which it got no new requests. `to` is null while it lasts. */
export interface Interval {
  from: number;
  to: number | null;
  why: string; // why it ended; of an ejection, why it began
  trial?: number; // since when an ejected replica gets one request at a time, to see whether it works
}

/** What a gateway received of a replica without a gap: the run of an engine, or a part of it. */
export class Run {
  /** The events to read, and the line of each in the cluster log, or its place in a chunk of the index. */
  #pending: LogEvent[] = [];
  #lines: number[] = [];
  #axis: Axis | null | undefined;
  model: Model;
  id: string;
  /** When it began (us), and what to add to its times. */
  began: number;
  offset: number;
  /** The name of its engine's run; "" if it has none. */
  engine: string;
  /** Its request ids, and the cluster's. All parts of an engine's run share them. */
  requests: Map<number, number>;
  /** The parts of the engine's run, in order. */
  parts: Run[];
  /** The requests whose clients were told of an error. All parts share them, too. */
  errors: { its: number; at: number; why: string }[];
  /** Number of its last event. */
  end: number | null = null;

  /** @param before the run that it continues after a gap */
  constructor(replica: Replica, began: number, before: Run | null) {
    this.id = replica.id;
    this.model = new Model([], replica.firstLane);
    this.began = began;
    this.offset = replica.offset;
    this.engine = replica.engine;
    this.requests = before?.requests ?? new Map();
    this.errors = before?.errors ?? [];
    this.parts = before?.parts ?? [];
    this.parts.push(this);
  }

  add(event: LogEvent, line: number, seq: number) {
    this.#pending.push(event);
    this.#lines.push(line);
    this.end = seq;
  }

  /** Reads what was added. A `LogError` names the line of the cluster log. */
  read() {
    if (!this.#pending.length) return;
    const text = this.#pending.map((event) => `${JSON.stringify(event)}\n`).join("");
    const first = this.#lines.length - this.#pending.length;
    this.#pending = [];
    this.#axis = undefined;
    try {
      this.model.read(encoder.encode(text));
    } catch (error) {
      const { reason, line = first + 1 } = error as LogError;
      throw new LogError(`replica ${this.id}: ${reason}`, { line: this.#lines[line - 1] });
    }
  }

  /** Reads what was added, from the chunk of the cluster's index in which it is. */
  readChunk(bytes: Uint8Array) {
    const [from, to] = [this.#lines[0], this.#lines.at(-1)];
    this.#pending = [];
    this.#lines = [];
    if (from === undefined || to === undefined) return;
    this.#axis = undefined;
    try {
      this.model.readChunk(bytes, (chunk) => eventsOf(chunk, this.id, from, to));
    } catch (error) {
      throw new LogError(`replica ${this.id}: ${(error as LogError).reason}`);
    }
  }

  /** Sets the engine's clock again. */
  align(offset: number) {
    for (const part of this.parts) {
      part.offset = offset;
      part.#axis = undefined;
    }
  }

  /** This part of the engine's run and the later ones. */
  get rest() {
    return this.parts.slice(this.parts.indexOf(this));
  }

  /**
   * When its engine ended, and why; null if nothing says so. A client was told of an error, but the engine has logged
   * neither the request's end nor a step since.
   */
  get died(): { at: number; why: string } | null {
    const isOpen = (its: number) =>
      this.parts.some((part) => part.span(its)) &&
      !this.parts.some((part) => part.span(its)?.finished);
    const error = this.errors.find(({ its }) => isOpen(its));
    const last = this.parts.at(-1)?.axis?.to ?? -Infinity;
    return error && last < error.at + CLOCK_ERROR ? error : null;
  }

  /** Whether it has a step to draw. */
  get hasSteps() {
    return this.model.stepCount > 0;
  }

  /** Its steps on the cluster's clock; null before the first one has ended. */
  get axis() {
    if (this.#axis === undefined)
      this.#axis = this.hasSteps ? wallAxis(this.model, -this.offset) : null;
    return this.#axis;
  }

  /** The last step that had begun by a time, or the first. */
  stepAt(at: number) {
    const { firstStep, lastStep } = this.model;
    if (!this.axis) return firstStep;
    return Math.min(Math.max(this.axis.stepAt(at), firstStep), lastStep);
  }

  /** When a step ended; NaN if the log does not say. */
  endOf(step: number) {
    const { measures, firstStep } = this.model;
    return measures.end.at(step - firstStep) + this.offset;
  }

  /** When a step began. */
  startOf(step: number) {
    const { measures, firstStep } = this.model;
    return measures.start.at(step - firstStep) + this.offset;
  }

  /** A request's span by its id here. */
  span(id: number | null | undefined): RequestSpan | undefined {
    return this.model.request(id);
  }
}

export class Replica {
  runs: Run[] = [];
  /** When it was there. */
  stays: Interval[] = [];
  /** When it was there and got no new requests, because it did not answer. */
  ejections: Interval[] = [];
  id: string;
  role = "";
  /** The lane of its first seat, in all of its runs. */
  firstLane = 0;
  /** What to add to the times of its engine now, and the name of that engine's run. */
  offset = 0;
  engine = "";

  constructor(id: string) {
    this.id = id;
  }

  /** Notes that it has joined, or that the clock of one that is there was measured again. */
  join({ role = "", run = "", t }: ReplicaJoined) {
    this.role = role;
    this.engine = run;
    this.offset = t.offset;
    if (this.stays.at(-1)?.to !== null) this.stays.push({ from: t.at, to: null, why: "" });
  }

  leave(at: number, why: string) {
    this.#close(this.ejections, at);
    this.#close(this.stays, at, why);
  }

  eject(at: number, why: string) {
    this.#close(this.ejections, at);
    this.ejections.push({ from: at, to: null, why });
  }

  /** @param isTrial it gets one request, to see whether it works */
  readmit(at: number, isTrial: boolean) {
    const last = this.ejections.at(-1);
    if (!isTrial) this.#close(this.ejections, at);
    else if (last?.to === null) last.trial = at;
  }

  #close(intervals: Interval[], at: number, why?: string) {
    const last = intervals.at(-1);
    if (last?.to === null) Object.assign(last, { to: at, why: why ?? last.why });
  }

  /**
   * Begins a run.
   *
   * @param at when the gateway last logged something of its own
   * @param continues after a gap, the engine that ran before
   */
  begin(at: number, continues: boolean) {
    const stay = this.stays.at(-1);
    const isFirst = !this.latest || (stay !== undefined && this.latest.began < stay.from);
    const began = isFirst && stay ? stay.from : at;
    const run = new Run(this, began, continues ? (this.latest ?? null) : null);
    run.align(this.offset);
    this.runs.push(run);
    return run;
  }

  get latest(): Run | undefined {
    return this.runs.at(-1);
  }

  /** The runs of its engines, each as its parts. */
  get engines() {
    return [...new Set(this.runs.map(({ parts }) => parts))];
  }

  /** Which engine's run a part belongs to, from 1; null if it is null. */
  numberOf(run: Run | null) {
    return run && this.engines.indexOf(run.parts) + 1;
  }

  /** The part of an engine's run, counted from 1, that has a step. */
  partWith(number: number, step: number | null) {
    const parts = this.engines[number - 1] ?? [];
    const isIn = ({ model: { firstStep, lastStep } }: Run) =>
      step !== null && step >= firstStep && step <= lastStep;
    return parts.find(isIn) ?? parts.at(-1);
  }

  /** The run at a time: the last that had begun, or the first; undefined if there is none. */
  runAt(at: number): Run | undefined {
    return this.runs.findLast(({ began }) => began <= at) ?? this.runs[0];
  }

  /** The stay, or the ejection, at a time. */
  stayAt = (at: number) => intervalAt(this.stays, at);
  ejectionAt = (at: number) => intervalAt(this.ejections, at);

  /** The times in which it was there without an engine, which had ended. */
  get deaths(): Interval[] {
    const { engines } = this;
    return engines.flatMap(([{ died }], i) => {
      const to = engines[i + 1]?.[0].began ?? this.left?.at ?? null;
      return died ? { from: died.at, to, why: died.why } : [];
    });
  }

  deathAt = (at: number) => intervalAt(this.deaths, at);

  /** When it left last before a time at which it is not there, and why; null if it had not joined yet. */
  leftBy(at: number): Interval | null {
    return this.stays.findLast(({ to }) => to !== null && to <= at) ?? null;
  }

  /** When it left for good, and why; null while it is there. */
  get left() {
    const { to, why } = this.stays.at(-1) ?? { to: null, why: "" };
    return to === null ? null : { at: to, why };
  }

  get hasSteps() {
    return this.runs.some(({ hasSteps }) => hasSteps);
  }

  /** The runs that can be drawn on an axis of time. */
  get timed() {
    return this.runs.filter(({ axis }) => axis);
  }

  /** What its engine does now, or did last. */
  get model() {
    return this.latest?.model ?? EMPTY;
  }
}

const EMPTY = new Model();

const intervalAt = (intervals: Interval[], at: number) =>
  intervals.findLast(({ from, to }) => from <= at && (to === null || at < to)) ?? null;
