/**
 * Each request's life, from arrival to end: what the timeline draws and the sentences tell of.
 *
 * @typedef {{kind: string, from: number, to: number | null, [field: string]: any}} Segment
 *
 * @typedef {object} Life
 * @property {number} id
 * @property {string} short     "r8"
 * @property {string} name      its label, numbered if another has it, or the short
 * @property {string} label
 * @property {number} index     its place among the lives, in order of appearance
 * @property {number} hueIndex  which hue it has
 * @property {number} root
 * @property {number} sample
 * @property {number} n
 * @property {number} promptLength
 * @property {number} maxTokens
 * @property {number} priority
 * @property {Record<string, any>} sampling
 * @property {number[]} tokens
 * @property {string[]} texts
 * @property {number | null} arrived
 * @property {number | null} arrivedAt
 * @property {{step: number, found: number, resumed: boolean, node: number, seq: number}[]} admissions
 * @property {{step: number, by: number, computed: number, resume: number | null, seq: number}[]} preemptions
 * @property {{step: number, parent: number} | null} forked
 * @property {{step: number, request: number}[]} forks
 * @property {{step: number, reason: string, message: string, seq: number} | null} finished
 * @property {number[]} tokenSteps
 * @property {number[]} logprobs   by output token, as far as the log has them
 * @property {number[]} drafted    places of output tokens that were accepted drafts
 * @property {number[]} forced     places of output tokens that a tool wrote
 * @property {Segment[]} segments
 */

import { LogError } from "./log.js";
import { rowKind } from "./rows.js";

/** Longer labels are cut in a name. */
const NAME_LENGTH = 16;

export class Lives {
  constructor() {
    /** @type {Life[]} */
    this.list = [];
    /** @type {Map<number, Life>} */
    this.byId = new Map();
    this.names = new Set();
    /** The latest number of each name that more than one wanted. @type {Map<string, number>} */
    this.numbers = new Map();
    /** Does the log begin in the middle of a run? */
    this.joined = false;
  }

  /**
   * Takes note of an event that is about to be applied to `state`.
   *
   * @param {any} event
   * @param {number} step
   * @param {import("./fold.js").State} state
   * @param {boolean} hasBegun  false: the event comes before the step's first decision
   */
  note(event, step, state, hasBegun) {
    const seq = state.seq + 1;
    switch (event.type) {
      case "admitted": {
        const life = this.#of(event.request);
        const found = event.blocks.length * state.blockSize;
        life.admissions.push({ step, found, resumed: event.resumed, node: event.node, seq });
        this.#endWait(life, step - 1);
        const last = life.preemptions.at(-1);
        if (event.resumed && last) last.resume = step;
        break;
      }
      case "preempted": {
        const life = this.#of(event.request);
        const { computed } = state.request(life.id);
        life.preemptions.push({ step, by: event.needed_by, computed, resume: null, seq });
        const { needed_by: by } = event;
        life.segments.push({ kind: "preempted", from: step, to: null, by, resume: null });
        break;
      }
      case "step_scheduled":
        for (const row of event.rows) this.#row(row, step, state);
        for (const [id, reason] of event.skipped) this.#skipped(id, reason, step, state);
        break;
      case "step_finished":
        event.tokens.forEach((/** @type {any} */ row, /** @type {number} */ index) =>
          this.#gain(row, event.t?.logprobs?.[index], step),
        );
        break;
      case "request_finished": {
        const life = this.#of(event.request);
        const { reason, message = "" } = event;
        // The last step that it lived in, as `finished_step` in `log.requests`.
        const last = Math.max(hasBegun ? step : step - 1, life.arrived ?? 0);
        life.finished = { step: last, reason, message, seq };
        this.#endWait(life, step - 1);
      }
    }
  }

  /**
   * Takes in the request that an arrival or a fork, just applied to `state`, brought into being.
   *
   * @param {any} event
   * @param {number} step
   * @param {import("./fold.js").State} state
   */
  meet(event, step, state) {
    if (event.type === "request_arrived") {
      const life = this.#add(state.request(event.request));
      life.arrived = step;
      life.arrivedAt = event.t?.at ?? null;
      life.segments.push({ kind: "waiting", from: step, to: null });
    } else {
      const life = this.#add(state.request(event.request));
      const parent = this.#of(event.parent);
      life.arrived = parent.arrived;
      life.arrivedAt = parent.arrivedAt;
      life.n = parent.n;
      life.forked = { step, parent: parent.id };
      parent.forks.push({ step, request: life.id });
    }
  }

  /**
   * Takes in the requests of a keyframe: who lives is known, how it came to be is not.
   *
   * @param {number} step
   * @param {import("./fold.js").State} state
   */
  rejoin(step, state) {
    this.joined = true;
    for (const request of state.requests.list()) {
      const life = this.#add(request);
      life.tokenSteps = new Array(request.length - request.promptLength).fill(0);
      if (request.place === null) continue;
      const again = request.preemptions ? { kind: "preempted", by: null, resume: null } : null;
      life.segments.push({ ...(again ?? { kind: "waiting" }), from: step, to: null });
    }
  }

  #of(/** @type {number} */ id) {
    const life = this.byId.get(id);
    if (!life) throw new LogError(`there is no request ${id}`);
    return life;
  }

  /** @param {import("./fold.js").RequestState} request @returns {Life} */
  #add(request) {
    const { id, root, sample, promptLength, maxTokens, priority, sampling, label } = request;
    /** @type {Life} */
    const life = {
      id,
      short: `r${id}`,
      name: this.#name(label, `r${id}`),
      label,
      index: this.list.length,
      // Whoever joins a run, or drops its beginning, gives a request the hue that all others give it.
      hueIndex: this.joined ? id - 1 : this.list.length,
      root,
      sample,
      n: request.slots,
      promptLength,
      maxTokens,
      priority,
      sampling,
      tokens: request.content.tokens,
      texts: request.content.texts,
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
      segments: [],
    };
    this.list.push(life);
    this.byId.set(id, life);
    return life;
  }

  #name(/** @type {string} */ label, /** @type {string} */ short) {
    const one = label.replace(/[\s\p{C}]+/gu, " ").trim();
    const letters = [...one];
    const base =
      letters.length > NAME_LENGTH
        ? `${letters.slice(0, NAME_LENGTH - 1).join("")}…`
        : one || short;
    let name = base;
    for (let number = this.numbers.get(base) ?? 2; this.names.has(name); number++) {
      name = `${base} ${number}`;
      this.numbers.set(base, number);
    }
    this.names.add(name);
    return name;
  }

  /** The wait or the preemption that lasts is over; one that took no step is forgotten. */
  #endWait(/** @type {Life} */ life, /** @type {number} */ to) {
    const open = openWait(life);
    if (!open) return;
    if (to < open.from) life.segments.pop();
    else open.to = to;
    if (open.kind === "preempted" && !life.finished) open.resume = to + 1;
  }

  #row(/** @type {any} */ row, /** @type {number} */ step, /** @type {any} */ state) {
    const [id, start, count] = row;
    const drafts = row[3]?.length ?? 0;
    const life = this.#of(id);
    const last = life.segments[life.segments.length - 1];
    const kind = rowKind(row, state.request(id));
    if (kind === "decode") {
      const goesOn = last?.kind === kind && last.to === step - 1 && !last.drafts;
      if (goesOn && !drafts) last.to = step;
      else life.segments.push({ kind, from: step, to: step, drafts, accepted: 0 });
      return;
    }
    const segment = { kind, from: step, to: step, drafts, accepted: 0 };
    const tokens = count - drafts;
    const admission = life.admissions.at(-1);
    const found = admission?.step === step ? admission.found : 0;
    const once = life.preemptions.reduce((most, { computed }) => Math.max(most, computed), 0);
    const recomputed = Math.max(0, Math.min(start + tokens, once) - start);
    life.segments.push({ ...segment, start, count: tokens, found, recomputed });
  }

  /** Tokens that a step brought. @param {any} row @param {number[] | undefined} logprobs */
  #gain(row, logprobs, /** @type {number} */ step) {
    const [id, ids] = row;
    const accepted = row[3] ?? 0;
    const fromTool = ids.length - (row[4] ?? 0);
    const life = this.#of(id);
    for (let index = 0; index < ids.length; index++) {
      const place = life.tokenSteps.push(step) - 1;
      if (index < accepted) life.drafted.push(place);
      if (index >= fromTool) life.forced.push(place);
      else if (logprobs?.[index] !== undefined) life.logprobs[place] = logprobs[index];
    }
    const segment = life.segments[life.segments.length - 1];
    if (segment?.from === step && segment.drafts) segment.accepted = accepted;
  }

  #skipped(
    /** @type {number} */ id,
    /** @type {string} */ reason,
    /** @type {number} */ step,
    /** @type {any} */ state,
  ) {
    if (state.request(id).place !== null) return; // a waiting request that the policy put off
    const { segments } = this.#of(id);
    const last = segments.at(-1);
    if (last?.kind === "stalled" && last.to === step - 1) last.to = step;
    else segments.push({ kind: "stalled", from: step, to: step, reason });
  }
}

/** The wait or preemption that has not ended. @param {Life} life @returns {Segment | null} */
function openWait({ segments }) {
  const last = segments.at(-1);
  return last && last.to === null ? last : null;
}
