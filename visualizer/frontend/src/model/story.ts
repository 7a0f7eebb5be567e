/**
 * One step in order: each decision and its result with the facts of that moment. A reason like "none was
 * free" is about an instant inside the step; the state at its end no longer shows it.
 */

import type { Events } from "./events.ts";
import { type Loads, unpacked } from "./expert_loads.ts";
import type { State } from "./fold.ts";
import { rowKind } from "./request_spans.ts";

export interface Admission {
  request: number;
  blocks: number[]; // found in the cache
  found: number; // tokens of it
  length: number; // tokens it has
  resumed: boolean;
  prefix: { adopted: number; source: string }; // how many of the found tokens another replica computed
  seq: number;
}

/** a request loses all its blocks, by a preemption or its end */
interface Loss {
  request: number;
  computed: number;
  table: number[];
  seq: number;
}

/** the request that needs the blocks, at the moment of the preemption */
interface Want {
  computed: number;
  uncomputed: number;
  blocks: number;
  writesShared: boolean; // its next token goes into a block that others hold
}

/** by: -1, and no want, if the log does not know the cause */
export type Preemption = Loss & {
  by: number;
  refunded: number;
  free: number;
  evictable: number;
  running: number[];
  want: Want | null;
};

export type Ending = Loss & { reason: string; message: string };

export type Eviction = {
  node: number;
  blocks: number[];
  neededBy: number;
  reason: string;
  since: number | null;
  hash?: string | null;
  free: number;
  seq: number;
};

/** tokens start .. end are computed, and drafts after them: `count` in all */
export type Row = {
  request: number;
  start: number;
  end: number;
  count: number;
  drafts: number[];
  kind: "prefill" | "decode" | "catchup";
  prompt: number;
  length: number;
  seq: number;
};

type Copy = {
  request: number;
  source: number;
  block: number;
  sharers: number[];
  seq: number;
};

/** why the head of the queue was not admitted, in blocks, seats or tokens, and the blocks that there were */
export interface Obstacle {
  request: number;
  reason: string;
  need: number;
  have: number;
  free: number;
  evictable: number;
}

/** what a device did: compute, wait, or the name of an operation among devices; in microseconds */
export type DeviceSpan = [kind: string, start: number, end: number, bytes: number];

export class Story {
  arrived: number[] = [];
  admissions: Admission[] = [];
  /** Blocks allocated from the free stack. */
  taken: { request: number; block: number; seq: number }[] = [];
  copies: Copy[] = [];
  preemptions: Preemption[] = [];
  evictions: Eviction[] = [];
  adoptions: (Events["prefix_adopted"] & { seq: number })[] = [];
  /** Between the GPU and the tiers below it. */
  moves: (Events["blocks_moved"] & { seq: number })[] = [];
  /** Of adapters. */
  slots: (Events["adapter_changed"] & { seq: number })[] = [];
  /** What each device did in the forward pass that ended, if the model is on several. */
  devices: { step: number; lanes: DeviceSpan[][] } | null = null;
  rows: Row[] = [];
  /** Running requests that got nothing. */
  stalled: { request: number; reason: string; seq: number }[] = [];
  blocked: Obstacle | null = null;
  /** Waiting requests when scheduling was done, front to back. */
  waiting: number[] = [];
  /** Seats that were taken then: one per sample of a running request. */
  seats = 0;
  scheduled: Events["step_scheduled"] | null = null;
  forks: { request: number; parent: number; blocks: number; seq: number }[] = [];
  /** `first`: the request's prompt is complete only now; `rejected`: texts of the drafts that were not accepted. */
  gains: {
    request: number;
    ids: number[];
    accepted: number;
    forced: number;
    rejected: string[];
    byGrammar: boolean;
    first: boolean;
    seq: number;
  }[] = [];
  /** Rows that were computed in vain. */
  wasted: { request: number; of: number; seq: number }[] = [];
  /** Blocks that lost their window page to a request's new blocks. */
  lostPages: { blocks: number[]; neededBy: number; seq: number }[] = [];
  /** Messages that the source of a foreign log lost. */
  gaps: Events["events_missing"][] = [];
  /** Blocks that a foreign engine reported as cached. */
  stored: Events["blocks_reported"][] = [];
  /** What a foreign engine reported in counts. */
  counted: Events["step_reported"] | null = null;
  /** The steps that finished: this one, or with asynchronous scheduling the one before. */
  finished: number[] = [];
  /** The step of `finished` that was computed by experts, and their loads. */
  loads: { step: number; layers: Loads } | null = null;
  /** Why the draft model failed after the forward pass, usually "". */
  draftError = "";
  /** Blocks that the cache had already. */
  joins: { request: number; blocks: number[]; seq: number }[] = [];
  endings: Ending[] = [];
  /** Running requests when the step began. */
  running: number[] = [];

  /**
   * Applies a step's events to `state` and records them.
   *
   * @param state as it was before; afterwards as it is at the end
   */
  constructor(state: State, events: any[]) {
    this.running = state.running;
    for (const event of events) {
      this.#record(event, state, state.seq + 1);
      state.apply(event);
    }
  }

  /** Blocks allocated for a request in this step, copies included. */
  takenBy(id: number) {
    return this.taken.filter(({ request }) => request === id).map(({ block }) => block);
  }

  #record(event: any, state: State, seq: number) {
    const { request } = event;
    switch (event.type) {
      case "request_arrived":
        this.arrived.push(request);
        break;
      case "admitted": {
        const { blocks, node, resumed } = event;
        const found = blocks.length * state.blockSize;
        const { length } = state.request(request);
        const prefix = state.adoptedPrefix(node);
        this.admissions.push({ request, blocks, found, length, resumed, prefix, seq });
        break;
      }
      case "prefix_adopted":
        this.adoptions.push({ ...event, seq });
        break;
      case "blocks_moved":
        this.moves.push({ ...event, seq });
        break;
      case "adapter_changed":
        this.slots.push({ ...event, seq });
        break;
      case "blocks_allocated":
        for (const block of event.blocks) this.taken.push({ request, block, seq });
        break;
      case "group_table_changed":
        for (const [, block] of event.changes)
          if (block >= 0) this.taken.push({ request, block, seq });
        break;
      case "block_copied": {
        const { source, block } = event;
        const sharers = state.running.filter(
          (id) => id !== request && state.request(id).block_table.includes(source),
        );
        this.copies.push({ request, source, block, sharers, seq });
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
        const { hash } = node; // then uses are not known
        const since = hash ? null : node.used;
        const blocks = event.type === "block_evicted" ? [event.block] : node.blocks;
        const { free } = state.counts;
        this.evictions.push({ node: node.id, hash, blocks, since, neededBy, reason, free, seq });
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
        const blocks = state.request(event.parent).block_table.length;
        this.forks.push({ request, parent: event.parent, blocks, seq });
        break;
      }
      case "step_finished":
        this.finished.push(event.step);
        if (event.expert_loads)
          this.loads = { step: event.step, layers: unpacked(event.expert_loads) };
        if (event.t?.devices?.length) this.devices = { step: event.step, lanes: event.t.devices };
        this.draftError ||= event.draft_error ?? "";
        for (const [index, row] of event.tokens.entries()) {
          const [id, ids, , accepted = 0, forced = 0, allowed] = row;
          const { length, prompt_length } = state.request(id);
          const first = length === prompt_length;
          const byGrammar = Boolean(allowed?.at(-1)); // a tool's tokens pass no grammar
          const rejected = event.t?.rejected?.[index] ?? [];
          this.gains.push({ request: id, ids, accepted, forced, rejected, byGrammar, first, seq });
        }
        for (const id of event.wasted ?? []) this.wasted.push({ request: id, of: event.step, seq });
        break;
      case "radix_joined": {
        const { block_table: table, last_node: lock } = state.request(request);
        const start = state.depth(lock);
        // A sample joins what its sibling just inserted, which may be the blocks that it shares.
        const isOther = (block: number, index: number) => block !== table[start + index];
        const blocks = event.blocks.filter(isOther);
        if (blocks.length) this.joins.push({ request, blocks, seq });
        break;
      }
      case "request_finished": {
        const { reason, message = "" } = event;
        this.endings.push({ ...loss(state, request, seq), reason, message });
      }
    }
  }

  #schedule(event: any, state: State, seq: number) {
    this.scheduled = event;
    for (const [id, start, count, drafts = []] of event.rows) {
      const request = state.request(id);
      const kind = rowKind([id, start, count, drafts], request);
      const { prompt_length: prompt, length } = request;
      const end = start + count - drafts.length;
      this.rows.push({ request: id, start, end, count, drafts, kind, prompt, length, seq });
    }
    for (const [id, reason] of event.skipped) {
      if (state.request(id).place === null) this.stalled.push({ request: id, reason, seq });
    }
    this.waiting = state.waiting();
    this.seats = state.seats;
    if (!event.blocked) return;
    const [request, reason, , need, have] = event.blocked;
    let { free } = state.counts;
    for (const { request: id, end } of this.rows) {
      // Drafts got their blocks after the head of the queue was examined.
      free += state.request(id).block_table.length - Math.ceil(end / state.blockSize);
    }
    this.blocked = { request, reason, need, have, free, evictable: state.evictable };
  }
}

function loss(state: State, id: number, seq: number): Loss {
  const { num_computed_tokens: computed, block_table: table } = state.request(id);
  return { request: id, computed, table, seq };
}

function want(state: State, id: number): Want {
  const { length: known, block_table: table } = state.request(id);
  const computed = state.scheduledTokens(id);
  // A step in flight that computes the last known token will add one.
  const length = state.inFlight(id).some(([, start, count]) => start + count === known)
    ? known + 1
    : known;
  const writesShared = computed % state.blockSize !== 0 && state.refs(table.at(-1) as number) > 1;
  return { computed, uncomputed: length - computed, blocks: table.length, writesShared };
}
