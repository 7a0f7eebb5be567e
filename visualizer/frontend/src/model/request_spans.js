/**
 * What happened to each request from its arrival to its end: the timeline draws it, the sentences describe it.
 *
 * @typedef {object} Segment
 * @property {"waiting" | "preempted" | "prefill" | "catchup" | "decode" | "stalled"} kind
 * @property {number} from
 * @property {number | null} to    the last step of it; null while it lasts
 * @property {number | null} [by]        preempted: the request that needed its blocks
 * @property {number | null} [resume]    preempted: the step that resumed it
 * @property {number} [start]      prefill and catch-up: the first token computed
 * @property {number} [count]      tokens computed, without drafts
 * @property {number} [found]      tokens found in the cache just before
 * @property {number} [recomputed] of `count`, those that had been computed before a preemption
 * @property {number} [drafts]
 * @property {number} [accepted]
 * @property {string} [reason]     stalled: why
 * @property {"ended" | "preempted" | "dropped"} [wasted]  why the row of this one step was in vain
 *
 * @typedef {object} Mask  what a request's grammar left to choose from for an output token
 * @property {number} allowed        number of tokens that it allowed
 * @property {string | null} wanted  what the model preferred, if the grammar forbids it
 * @property {number | null} mass    the model's probability of all allowed tokens together, if the log has it
 *
 * @typedef {object} RequestSpan
 * @property {number} id
 * @property {string} short     "r8"
 * @property {string} name      its label, numbered if another has it, or the short
 * @property {string} label
 * @property {number} index     its place among all requests, in order of appearance
 * @property {number | null} lane        its lane, see `lanes.js`; null if it was never admitted
 * @property {number} lanedAt   the step that gave it the lane; in a window, the first step if that is earlier
 * @property {number} root
 * @property {number} sample
 * @property {number} n
 * @property {number} promptLength
 * @property {number} maxTokens
 * @property {number} priority
 * @property {Record<string, any>} sampling
 * @property {number[]} tokens
 * @property {string[]} texts
 * @property {string[]} [hashes]  of the prompt's full blocks, in a foreign log without token ids
 * @property {number | null} arrived
 * @property {number | null} arrivedAt
 * @property {{step: number, found: number, resumed: boolean, node: number, seq: number}[]} admissions
 * @property {{step: number, by: number, computed: number, resume: number | null, seq: number}[]} preemptions
 * @property {{step: number, parent: number} | null} forked
 * @property {{step: number, request: number}[]} forks
 * @property {{step: number, reason: string, message: string, seq: number} | null} finished
 * @property {number[]} tokenSteps
 * @property {number[]} logprobs   by output token, as far as the log has them
 * @property {number[]} drafted    positions of output tokens that were accepted drafts
 * @property {number[]} forced     positions of output tokens that a tool or the grammar wrote
 * @property {Mask[]} masks        by output token: what the request's grammar left to choose from
 * @property {Segment[]} segments
 */

import { laneOf } from "./lanes.js";
import { LogError } from "./log.js";
import { rowKind } from "./rows.js";

/** The kinds of segments that are rows of steps. */
const ROWS = new Set(["prefill", "catchup", "decode"]);
/** The number in a label such as "cmpl-3f1e2a4b5c6d7e8f-0" or one with a UUID. */
const HEX = /(?<![\da-z])(?=[\d-]*[a-f])(?=[a-f-]*\d)[\da-f]{8}-?[\da-f]{4}[\da-f-]*/i;
const DIGITS = [4, 5, 6];
/** Longer labels are cut in a name. */
const NAME_LENGTH = 16;

export class RequestSpans {
  /** @param {number} firstLane  the number of the first lane */
  constructor(firstLane) {
    this.firstLane = firstLane;
    /** @type {RequestSpan[]} */
    this.list = [];
    /** @type {Map<number, RequestSpan>} */
    this.byId = new Map();
    /** The number of lanes that requests have had. */
    this.laneCount = 0;
    this.names = new Set();
    /** The last number given to each name that several requests share. @type {Map<string, number>} */
    this.numbers = new Map();
  }

  /**
   * Records an event that is about to be applied to `state`.
   *
   * @param {import("./events.js").LogEvent} event
   * @param {number} step
   * @param {import("./fold.js").State} state
   * @param {boolean} hasBegun  false: the event comes before the step's first decision
   */
  note(event, step, state, hasBegun) {
    const seq = state.seq + 1;
    switch (event.type) {
      case "admitted": {
        const span = this.#of(event.request);
        const found = event.blocks.length * state.blockSize;
        span.admissions.push({ step, found, resumed: event.resumed, node: event.node, seq });
        this.#endWait(span, step - 1);
        const last = span.preemptions.at(-1);
        if (event.resumed && last) last.resume = step;
        break;
      }
      case "preempted": {
        const span = this.#of(event.request);
        const { computed } = state.request(span.id);
        span.preemptions.push({ step, by: event.needed_by, computed, resume: null, seq });
        const { needed_by: by } = event;
        span.segments.push({ kind: "preempted", from: step, to: null, by, resume: null });
        break;
      }
      case "step_scheduled":
        for (const row of event.rows) this.#row(row, step, state);
        for (const [id, reason] of event.skipped) this.#skipped(id, reason, step, state);
        break;
      case "step_finished":
        event.tokens.forEach((row, index) => this.#gain(row, event.t ?? {}, index, step));
        for (const id of event.wasted ?? []) this.#waste(id, event.step ?? step, state);
        break;
      case "request_finished": {
        const span = this.#of(event.request);
        const { reason, message = "" } = event;
        // The last step in which it existed, as `finished_step` in `read(log).requests`.
        const last = Math.max(hasBegun ? step : step - 1, span.arrived ?? 0);
        span.finished = { step: last, reason, message, seq };
        this.#endWait(span, step - 1);
        trim(span, state.request(span.id).content);
      }
    }
  }

  /**
   * Records an arrival, a fork or an admission that has just been applied to `state`: the request and its lane.
   *
   * @param {import("./events.js").RequestArrived | import("./events.js").Forked | import("./events.js").Admitted} event
   * @param {number} step
   * @param {import("./fold.js").State} state
   */
  meet(event, step, state) {
    if (event.type === "request_arrived") {
      const span = this.#add(state.request(event.request));
      span.arrived = step;
      span.arrivedAt = event.t?.at ?? null;
      span.segments.push({ kind: "waiting", from: step, to: null });
    } else if (event.type === "forked") {
      const span = this.#add(state.request(event.request));
      const parent = this.#of(event.parent);
      span.arrived = parent.arrived;
      span.arrivedAt = parent.arrivedAt;
      span.n = parent.n;
      span.forked = { step, parent: parent.id };
      parent.forks.push({ step, request: span.id });
    }
    this.#takeLane(this.#of(event.request), step, state);
  }

  /**
   * Adds the requests of a keyframe: which requests exist is known, their history is not.
   *
   * @param {number} step
   * @param {import("./fold.js").State} state
   */
  rejoin(step, state) {
    for (const request of state.requests.list()) {
      const span = this.#add(request);
      this.#takeLane(span, step, state);
      span.tokenSteps = new Array(request.length - request.promptLength).fill(0);
      if (request.place === null) continue;
      span.segments.push(
        request.preemptions
          ? { kind: "preempted", from: step, to: null, by: null, resume: null }
          : { kind: "waiting", from: step, to: null },
      );
    }
  }

  #of(/** @type {number} */ id) {
    const span = this.byId.get(id);
    if (!span) throw new LogError(`there is no request ${id}`);
    return span;
  }

  /** @param {import("./fold.js").RequestState} request @returns {RequestSpan} */
  #add(request) {
    const { id, root, sample, promptLength, maxTokens, priority, sampling, label } = request;
    /** @type {RequestSpan} */
    const span = {
      id,
      short: `r${id}`,
      name: this.#name(label, `r${id}`),
      label,
      index: this.list.length,
      lane: null,
      lanedAt: Infinity,
      root,
      sample,
      n: request.slots,
      promptLength,
      maxTokens,
      priority,
      sampling,
      tokens: request.content.tokens,
      texts: request.content.texts,
      hashes: request.content.hashes,
      arrived: null,
      arrivedAt: null,
      admissions: [],
      preemptions: [],
      forked: null,
      forks: [],
      finished: null,
      tokenSteps: [],
      logprobs: [],
      drafted: [],
      forced: [],
      masks: [],
      segments: [],
    };
    this.list.push(span);
    this.byId.set(id, span);
    return span;
  }

  #takeLane(
    /** @type {RequestSpan} */ span,
    /** @type {number} */ step,
    /** @type {import("./fold.js").State} */ state,
  ) {
    const lane = span.lane === null ? laneOf(state.lanes, span.id) : -1;
    if (lane < 0) return;
    span.lane = this.firstLane + lane;
    span.lanedAt = step;
    this.laneCount = Math.max(this.laneCount, lane + 1);
  }

  #name(/** @type {string} */ label, /** @type {string} */ short) {
    const one = label.replace(/[\s\p{C}]+/gu, " ").trim();
    const letters = [...one];
    let base =
      letters.length > NAME_LENGTH
        ? `${letters.slice(0, NAME_LENGTH - 1).join("")}…`
        : one || short;
    const hex = HEX.exec(one)?.[0].replaceAll("-", "");
    if (hex)
      base =
        DIGITS.map((most) => hex.slice(0, most)).find(
          (name, i) => i === DIGITS.length - 1 || !this.names.has(name),
        ) ?? base;
    let name = base;
    for (let number = this.numbers.get(base) ?? 2; this.names.has(name); number++) {
      name = `${base} ${number}`;
      this.numbers.set(base, number);
    }
    this.names.add(name);
    return name;
  }

  /** Ends the open wait or preemption; one that took no step is removed. */
  #endWait(/** @type {RequestSpan} */ span, /** @type {number} */ to) {
    const open = openWait(span);
    if (!open) return;
    if (to < open.from) span.segments.pop();
    else open.to = to;
    if (open.kind === "preempted" && !span.finished) open.resume = to + 1;
  }

  #row(
    /** @type {import("./events.js").ScheduledRow} */ row,
    /** @type {number} */ step,
    /** @type {import("./fold.js").State} */ state,
  ) {
    const id = row[0];
    const drafts = row[3]?.length ?? 0;
    const span = this.#of(id);
    const last = span.segments[span.segments.length - 1];
    const kind = rowKind(row, state.request(id));
    if (kind === "decode") {
      const goesOn = last?.kind === kind && last.to === step - 1 && !last.drafts && !last.wasted;
      if (goesOn && !drafts) last.to = step;
      else span.segments.push({ kind, from: step, to: step, drafts, accepted: 0 });
      return;
    }
    const [, start, count] = row;
    const segment = { kind, from: step, to: step, drafts, accepted: 0 };
    const tokens = count - drafts;
    const admission = span.admissions.at(-1);
    const found = admission?.step === step ? admission.found : 0;
    const once = span.preemptions.reduce((most, { computed }) => Math.max(most, computed), 0);
    const recomputed = Math.max(0, Math.min(start + tokens, once) - start);
    span.segments.push({ ...segment, start, count: tokens, found, recomputed });
  }

  /**
   * Records the tokens of a step.
   *
   * @param {import("./events.js").TokenRow} row
   * @param {Record<string, any>} t  what the step measured
   * @param {number} number  of the row
   * @param {number} step
   */
  #gain(row, t, number, step) {
    const logprobs = t.logprobs?.[number];
    const ids = row[1];
    const allowed = row[5] ?? [];
    const accepted = row[3] ?? 0;
    const fromTool = ids.length - (row[4] ?? 0);
    const span = this.#of(row[0]);
    for (let index = 0; index < ids.length; index++) {
      const place = span.tokenSteps.push(step) - 1;
      if (index < accepted) span.drafted.push(place);
      if (index >= fromTool) span.forced.push(place);
      else if (logprobs?.[index] !== undefined) span.logprobs[place] = logprobs[index];
      if (allowed[index]) {
        const [, wanted] = t.wanted?.[number][index] ?? [0, null];
        span.masks[place] = {
          allowed: allowed[index],
          wanted,
          mass: t.mass?.[number][index] ?? null,
        };
      }
    }
    const segment = span.segments[span.segments.length - 1];
    if (segment?.from === step && segment.drafts) segment.accepted = accepted;
  }

  /** Makes a row in vain a segment of its own. */
  #waste(
    /** @type {number} */ id,
    /** @type {number} */ step,
    /** @type {import("./fold.js").State} */ state,
  ) {
    const request = state.requests.get(id);
    const wasted = !request ? "ended" : request.place === null ? "dropped" : "preempted";
    const { segments } = this.#of(id);
    const at = segments.findLastIndex(
      ({ kind, from, to }) => ROWS.has(kind) && from <= step && step <= Number(to),
    );
    if (at < 0) return; // the log begins after its row
    const segment = segments[at];
    /** @type {Segment[]} */
    const parts = [
      { ...segment, to: step - 1 },
      { ...segment, from: step, to: step, wasted },
      { ...segment, from: step + 1 },
    ];
    segments.splice(at, 1, ...parts.filter(({ from, to }) => from <= Number(to)));
  }

  #skipped(
    /** @type {number} */ id,
    /** @type {string} */ reason,
    /** @type {number} */ step,
    /** @type {import("./fold.js").State} */ state,
  ) {
    if (state.request(id).place !== null) return; // a waiting request that the policy deferred
    const { segments } = this.#of(id);
    const last = segments.at(-1);
    if (last?.kind === "stalled" && last.reason === reason && last.to === step - 1) last.to = step;
    else segments.push({ kind: "stalled", from: step, to: step, reason });
  }
}

/**
 * Gives back what an ended request's lists have reserved for more items: half of their memory, and most requests of a
 * long log have ended.
 *
 * @param {RequestSpan} span
 * @param {import("./fold.js").Content} content  shared by the request's states and the nodes of the tree
 */
function trim(span, content) {
  content.tokens = span.tokens = content.tokens.slice();
  content.texts = span.texts = content.texts.slice();
  span.tokenSteps = span.tokenSteps.slice();
  span.logprobs = span.logprobs.slice();
  span.segments = span.segments.slice();
}

/** The wait or preemption that has not ended. @param {RequestSpan} span @returns {Segment | null} */
function openWait({ segments }) {
  const last = segments.at(-1);
  return last && last.to === null ? last : null;
}
