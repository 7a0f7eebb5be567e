/**
 * One replica of a cluster: its part of the log as a `Model`, and its place on the cluster's clock. Times in
 * microseconds since the gateway started.
 */

/** @import { Axis } from "../drawing/time_axis.js" */
/** @import { LogEvent } from "../model/events.js" */
/** @import { RequestSpan } from "../model/request_spans.js" */
/** @import { ReplicaJoined } from "./cluster_lines.js" */
import { wallAxis } from "../drawing/wall_axis.js";
import { LogError, Model } from "../model/index.js";

const encoder = new TextEncoder();

export class Replica {
  /** @type {{at: number, why: string} | null} */
  left = null;
  /** The events to read, and the line of each in the cluster log. @type {string[]} */
  #pending = [];
  /** @type {number[]} */
  #lines = [];
  /** @type {Axis | null | undefined} */
  #axis;
  /** Its request ids, and the cluster's. @type {Map<number, number>} */
  requests = new Map();
  hasBegun = false;
  /** Number of its last event. @type {number | null} */
  end = null;

  /** @param {ReplicaJoined} event @param {number} index */
  constructor({ replica, url = "", role = "", t }, index) {
    this.id = replica;
    this.index = index;
    this.url = url;
    this.role = role;
    this.joinedAt = t.at;
    this.offset = t.offset;
    this.model = new Model();
  }

  /**
   * Begins a run, or joins one after a gap, with marks from `firstLane` on. A run that goes on keeps its request ids.
   *
   * @param {number} firstLane @param {boolean} goesOn
   */
  begin(firstLane, goesOn) {
    this.hasBegun = true;
    this.model = new Model([], firstLane);
    if (!goesOn) this.requests = new Map();
    this.#pending = [];
    this.#lines = [];
    this.#axis = undefined;
  }

  /** @param {LogEvent} event @param {number} line */
  add(event, line) {
    this.#pending.push(JSON.stringify(event));
    this.#lines.push(line);
  }

  /** Reads what was added. A `LogError` names the line of the cluster log. */
  read() {
    if (!this.#pending.length) return;
    const text = `${this.#pending.join("\n")}\n`;
    const first = this.#lines.length - this.#pending.length;
    this.#pending = [];
    this.#axis = undefined;
    try {
      this.model.read(encoder.encode(text));
    } catch (error) {
      const { reason, line = first + 1 } = /** @type {LogError} */ (error);
      throw new LogError(`replica ${this.id}: ${reason}`, { line: this.#lines[line - 1] });
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

  /** The last step that had begun by a time, or the first. @param {number} at */
  stepAt(at) {
    const { firstStep, lastStep } = this.model;
    if (!this.axis) return firstStep;
    return Math.min(Math.max(this.axis.stepAt(at), firstStep), lastStep);
  }

  /** When a step ended; NaN if the log does not say. @param {number} step */
  endOf(step) {
    const { measures, firstStep } = this.model;
    return (measures.end[step - firstStep] ?? NaN) + this.offset;
  }

  /** When a step began. @param {number} step */
  startOf(step) {
    const { measures, firstStep } = this.model;
    return (measures.start[step - firstStep] ?? NaN) + this.offset;
  }

  /** A request's span by its id here. @param {number | null | undefined} id @returns {RequestSpan | undefined} */
  span(id) {
    return this.model.request(id);
  }
}
