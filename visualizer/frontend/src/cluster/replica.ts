/**
 * One replica of a cluster: its part of the log as a `Model`, and its place on the cluster's clock. Times in
 * microseconds since the gateway started.
 */

import type { Axis } from "../drawing/time_axis.ts";
import { wallAxis } from "../drawing/wall_axis.ts";
import type { LogEvent } from "../model/events.ts";
import { LogError, Model } from "../model/index.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { eventsOf } from "./cluster_chunk.ts";
import type { ReplicaJoined } from "./cluster_lines.ts";

const encoder = new TextEncoder();

export class Replica {
  left: { at: number; why: string } | null = null;
  /** The events to read, and the line of each in the cluster log, or its place in a chunk of the index. */
  #pending: LogEvent[] = [];
  #lines: number[] = [];
  #axis: Axis | null | undefined;
  /** Its request ids, and the cluster's. */
  requests: Map<number, number> = new Map();
  hasBegun = false;
  /** Number of its last event. */
  end: number | null = null;
  id: string;
  role: string;
  offset: number;
  model = new Model();

  constructor({ replica, role = "", t }: ReplicaJoined) {
    this.id = replica;
    this.role = role;
    this.offset = t.offset;
  }

  /**
   * Begins a run, or joins one after a gap, with marks from `firstLane` on. A run that goes on keeps its request ids.
   */
  begin(firstLane: number, goesOn: boolean) {
    this.hasBegun = true;
    this.model = new Model([], firstLane);
    if (!goesOn) this.requests = new Map();
    this.#pending = [];
    this.#lines = [];
    this.#axis = undefined;
  }

  add(event: LogEvent, line: number) {
    this.#pending.push(event);
    this.#lines.push(line);
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
    const [from] = this.#lines;
    this.#pending = [];
    this.#lines = [];
    if (from === undefined) return;
    this.#axis = undefined;
    try {
      this.model.readChunk(bytes, (chunk) => eventsOf(chunk, this.id, from));
    } catch (error) {
      throw new LogError(`replica ${this.id}: ${(error as LogError).reason}`);
    }
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
    return (measures.end[step - firstStep] ?? NaN) + this.offset;
  }

  /** When a step began. */
  startOf(step: number) {
    const { measures, firstStep } = this.model;
    return (measures.start[step - firstStep] ?? NaN) + this.offset;
  }

  /** A request's span by its id here. */
  span(id: number | null | undefined): RequestSpan | undefined {
    return this.model.request(id);
  }
}
