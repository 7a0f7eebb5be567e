/**
 * One step in order: each decision and its result with the facts of that moment. A reason like "none was
 * free" is about an instant inside the step; the state at its end no longer shows it.
 *
 * @typedef {object} Admission
 * @property {number} request
 * @property {number[]} blocks    found in the cache
 * @property {number} found       tokens of it
 * @property {number} length      tokens it has
 * @property {boolean} resumed
 * @property {number} node
 * @property {number[]} key
 * @property {{adopted: number, source: string}} prefix  how many of the found tokens another replica computed
 * @property {number} seq
 *
 * @typedef {object} Loss  a request loses all its blocks, by a preemption or its end
 * @property {number} request
 * @property {number} computed
 * @property {number[]} table
 * @property {number} seq
 *
 * @typedef {object} Want  the request that needs the blocks, at the moment of the preemption
 * @property {number} computed
 * @property {number} uncomputed
 * @property {number} blocks
 * @property {boolean} writesShared  its next token goes into a block that others hold
 *
 * @typedef {Loss & {by: number, refunded: number, free: number, evictable: number, running: number[],
 *   want: Want | null}} Preemption  by: -1, and no want, if the log does not know the cause
 * @typedef {Loss & {reason: string, message: string, waited: boolean}} Ending
 * @typedef {{node: number, blocks: number[], texts: string[], neededBy: number, reason: string,
 *   since: number | null, hash?: string, free: number, seq: number}} Eviction
 * @typedef {{request: number, start: number, end: number, count: number, drafts: number[],
 *   kind: "prefill" | "decode" | "catchup", prompt: number, length: number, seq: number}} Row
 *   tokens start .. end are computed, and drafts after them: `count` in all
 * @typedef {{request: number, source: number, block: number, index: number, sharers: number[],
 *   seq: number}} Copy
 */

import { unpacked } from "./expert_loads.js";
import { rowKind } from "./rows.js";

export class Story {
  /** @type {number[]} */
  arrived = [];
  /** @type {Admission[]} */
  admissions = [];
  /** Blocks allocated from the free stack. @type {{request: number, block: number, seq: number}[]} */
  taken = [];
  /** @type {Copy[]} */
  copies = [];
  /** @type {Preemption[]} */
  preemptions = [];
  /** @type {Eviction[]} */
  evictions = [];
  /** @type {(import("./events.js").PrefixAdopted & {seq: number})[]} */
  adoptions = [];
  /** @type {Row[]} */
  rows = [];
  /** Running requests that got nothing. @type {{request: number, reason: string, seq: number}[]} */
  stalled = [];
  /** @type {{request: number, reason: string, behind: number, need: number, have: number, free: number,
   *   evictable: number, seq: number} | null} */
  blocked = null;
  /** Waiting requests when scheduling was done, front to back. @type {number[]} */
  waiting = [];
  /** Seats that were taken then: one per sample of a running request. */
  seats = 0;
  /** @type {import("./events.js").StepScheduled | null} */
  scheduled = null;
  /** @type {{request: number, parent: number, sample: number, blocks: number, seq: number}[]} */
  forks = [];
  /** `first`: the request's prompt is complete only now; `rejected`: texts of the drafts that were not accepted.
   * @type {{request: number, ids: number[], accepted: number, forced: number, rejected: string[], byGrammar: boolean,
   *   first: boolean, seq: number}[]} */
  gains = [];
  /** Rows that were computed in vain. @type {{request: number, of: number, seq: number}[]} */
  wasted = [];
  /** Blocks that lost their window page to a request's new blocks.
   * @type {{blocks: number[], neededBy: number, seq: number}[]} */
  lostPages = [];
  /** Messages that the source of a foreign log lost. @type {import("./events.js").EventsMissing[]} */
  gaps = [];
  /** Blocks that a foreign engine reported as cached. @type {import("./events.js").BlocksReported[]} */
  stored = [];
  /** What a foreign engine reported in counts. @type {import("./events.js").StepReported | null} */
  counted = null;
  /** The steps that finished: this one, or with asynchronous scheduling the one before. @type {number[]} */
  finished = [];
  /** The step of `finished` that was computed by experts, and their loads. @type {{step: number, layers: import("./expert_loads.js").Loads} | null} */
  loads = null;
  /** Why the draft model failed after the forward pass, usually "". */
  draftError = "";
  /** Blocks that the cache had already. @type {{request: number, blocks: number[], seq: number}[]} */
  joins = [];
  /** @type {Ending[]} */
  endings = [];
  /** Running requests when the step began. @type {number[]} */
  running = [];

  /**
   * Applies a step's events to `state` and records them.
   *
   * @param {import("./fold.js").State} state  as it was before; afterwards as it is at the end
   * @param {any[]} events
   */
  constructor(state, events) {
    this.running = state.running;
    for (const event of events) {
      this.#record(event, state, state.seq + 1);
      state.apply(event);
    }
  }

  /** Blocks allocated for a request in this step, copies included. @param {number} id */
  takenBy(id) {
    return this.taken.filter(({ request }) => request === id).map(({ block }) => block);
  }

  /** @param {any} event @param {import("./fold.js").State} state @param {number} seq */
  #record(event, state, seq) {
    const { request } = event;
    switch (event.type) {
      case "request_arrived":
        this.arrived.push(request);
        break;
      case "admitted": {
        const { blocks, node, resumed, key } = event;
        const found = blocks.length * state.blockSize;
        const { length } = state.request(request);
        const prefix = state.adoptedPrefix(node);
        this.admissions.push({ request, blocks, found, length, resumed, node, key, prefix, seq });
        break;
      }
      case "prefix_adopted":
        this.adoptions.push({ ...event, seq });
        break;
      case "blocks_allocated":
        for (const block of event.blocks) this.taken.push({ request, block, seq });
        break;
      case "block_copied": {
        const { index, source, block } = event;
        const sharers = state.running.filter(
          (id) => id !== request && state.request(id).table.includes(source),
        );
        this.copies.push({ request, source, block, index, sharers, seq });
        this.taken.push({ request, block, seq });
        break;
      }
      case "preempted": {
        const { needed_by: by, refunded } = event;
        const { free } = state.counts;
        this.preemptions.push({
          ...loss(state, request, seq),
          by,
          refunded,
          free,
          evictable: state.evictable,
          running: state.running,
          want: state.requests.get(by) ? want(state, by) : null,
        });
        break;
      }
      case "block_evicted":
      case "radix_evicted": {
        const { needed_by: neededBy, reason } = event;
        const node = state.node(event.node);
        const texts = state.textsOf(node);
        const { hash } = node; // then uses are not known
        const since = hash ? null : node.used;
        const blocks = event.type === "block_evicted" ? [event.block] : node.blocks;
        const { free } = state.counts;
        const what = { node: node.id, hash, blocks, texts, since };
        this.evictions.push({ ...what, neededBy, reason, free, seq });
        break;
      }
      case "window_pages_evicted":
        this.lostPages.push({ blocks: event.blocks, neededBy: event.needed_by, seq });
        break;
      case "blocks_reported":
        if (event.blocks.length) this.stored.push(event);
        break;
      case "step_reported":
        this.counted = event;
        break;
      case "events_missing":
        this.gaps.push(event);
        break;
      case "step_scheduled":
        this.#schedule(event, state, seq);
        break;
      case "forked": {
        const blocks = state.request(event.parent).table.length;
        this.forks.push({ request, parent: event.parent, sample: event.sample, blocks, seq });
        break;
      }
      case "step_finished":
        this.finished.push(event.step ?? state.step);
        if (event.expert_loads)
          this.loads = {
            step: event.step ?? state.step,
            layers: unpacked(event.expert_loads),
          };
        this.draftError ||= event.draft_error ?? "";
        for (const [index, row] of event.tokens.entries()) {
          const [id, ids, , accepted = 0, forced = 0, allowed] = row;
          const { length, promptLength } = state.request(id);
          const first = length === promptLength;
          const byGrammar = Boolean(allowed?.at(-1)); // a tool's tokens pass no grammar
          const rejected = event.t?.rejected?.[index] ?? [];
          this.gains.push({ request: id, ids, accepted, forced, rejected, byGrammar, first, seq });
        }
        for (const id of event.wasted ?? []) this.wasted.push({ request: id, of: event.step, seq });
        break;
      case "radix_joined": {
        const { table, lock } = state.request(request);
        const start = state.depth(lock);
        // A sample joins what its sibling just inserted, which may be the blocks that it shares.
        const blocks = event.blocks.filter(
          (/** @type {number} */ block, /** @type {number} */ index) =>
            block !== table[start + index],
        );
        if (blocks.length) this.joins.push({ request, blocks, seq });
        break;
      }
      case "request_finished": {
        const { reason, message = "" } = event;
        const waited = state.request(request).place !== null;
        this.endings.push({ ...loss(state, request, seq), reason, message, waited });
      }
    }
  }

  /** @param {any} event @param {import("./fold.js").State} state @param {number} seq */
  #schedule(event, state, seq) {
    this.scheduled = event;
    for (const [id, start, count, drafts = []] of event.rows) {
      const request = state.request(id);
      const kind = rowKind([id, start, count, drafts], request);
      const { promptLength: prompt, length } = request;
      const end = start + count - drafts.length;
      this.rows.push({ request: id, start, end, count, drafts, kind, prompt, length, seq });
    }
    for (const [id, reason] of event.skipped) {
      if (state.request(id).place === null) this.stalled.push({ request: id, reason, seq });
    }
    this.waiting = state.waiting();
    this.seats = state.running.reduce((sum, id) => sum + state.request(id).slots, 0);
    if (!event.blocked) return;
    const [request, reason, behind, need, have] = event.blocked;
    let { free } = state.counts;
    for (const { request: id, end } of this.rows) {
      // Drafts got their blocks after the head of the queue was examined.
      free += state.request(id).table.length - Math.ceil(end / state.blockSize);
    }
    this.blocked = { request, reason, behind, need, have, free, evictable: state.evictable, seq };
  }
}

/** @returns {Loss} */
function loss(
  /** @type {import("./fold.js").State} */ state,
  /** @type {number} */ id,
  /** @type {number} */ seq,
) {
  const { computed, table } = state.request(id);
  return { request: id, computed, table, seq };
}

/** @returns {Want} */
function want(/** @type {import("./fold.js").State} */ state, /** @type {number} */ id) {
  const { length: known, table } = state.request(id);
  const computed = state.scheduledTokens(id);
  // A step in flight that computes the last known token will add one.
  const length = state.inFlight(id).some(([, start, count]) => start + count === known)
    ? known + 1
    : known;
  const writesShared =
    computed % state.blockSize !== 0 && state.refs(/** @type {number} */ (table.at(-1))) > 1;
  return { computed, uncomputed: length - computed, blocks: table.length, writesShared };
}
