/**
 * The fold: events in, the engine's state out. `engine/events/fold.py` does the same in Python, and a
 * golden test holds the two equal after every event.
 *
 * Applying events 0..k gives exactly the state the engine had after event k. Three helpers carry most of
 * it: `take` takes blocks off the free stack, `drop` gives references back, `lock` counts live readers
 * along a path of the tree.
 *
 * `copy()` costs next to nothing, however large the state: what is not changed afterwards is shared.
 * Lists of blocks and of running requests are therefore replaced, never changed in place; requests and
 * nodes are changed through `#own`, which clones one that a copy may see. Token lists only ever grow,
 * and folding the same events again finds the same tokens in the same places, so all copies share
 * them: a request knows how many of them it has, a node where its own begin.
 *
 * @typedef {{tokens: number[], texts: string[]}} Content
 *
 * @typedef {{token_budget: number, max_batch_size: number, num_blocks: number, block_size: number}
 *   & Record<string, any>} Settings  of the engine
 *
 * @typedef {object} RequestState
 * @property {number} id
 * @property {number} root
 * @property {number} sample
 * @property {number} promptLength
 * @property {Content} content   the first `length` tokens of it are the request's
 * @property {number} length
 * @property {number} computed   leading tokens whose KV is in the request's blocks
 * @property {number[]} table    token p lives in block table[p / block_size]
 * @property {number} lock       radix node up to which its path is locked; 0: none
 * @property {number} slots      places in the batch
 * @property {number} preemptions
 * @property {number | null} place  waiting: smaller is nearer to the front; null: running
 * @property {string} label
 * @property {number} priority
 * @property {number} maxTokens
 * @property {Record<string, any>} sampling
 * @property {object} [epoch]    whose it is to change, as in NodeState
 *
 * @typedef {object} HoldState  a prefix that somebody holds though no request reads it; never changed
 * @property {number} id
 * @property {number[]} table
 * @property {number} lock
 * @property {string} label
 *
 * @typedef {object} NodeState
 * @property {number} id
 * @property {number} parent
 * @property {Content} content   its tokens are those from `from` on, a block's worth per block
 * @property {number} from
 * @property {number[]} blocks
 * @property {number} last       tick of the latest lock
 * @property {number} lock       live requests locked here or below
 * @property {number | null} used  step of the latest lock; null: before the log begins
 * @property {object} [epoch]    the state that may change it in place
 */

import { CowList } from "./cow_list.js";
/** @import * as Events from "./events.js" */
import { LogError } from "./log.js";

const ROOT = 0;

export class State {
  constructor() {
    this.seq = -1;
    this.step = 0;
    this.tick = 0;
    this.settings = /** @type {Settings} */ ({});
    /** What runs, as in run_started. @type {Record<string, string>} */
    this.classes = {};
    /** @type {number[]} */
    this.running = [];
    /** Rows of the step, `[request, start, count, drafts]`. @type {[number, number, number, number[]][]} */
    this.plan = [];
    /** @type {CowList<number>} */
    this.free = new CowList();
    /** @type {CowList<RequestState>} */
    this.requests = new CowList();
    /** @type {CowList<NodeState>} */
    this.nodes = new CowList();
    /** Replaced, never changed in place: copies share it. @type {Map<number, HoldState>} */
    this.holds = new Map();
    /** Blocks by what they are; they add up to all there are. */
    this.counts = { unshared: 0, shared: 0, cached: 0, free: 0 };
    this.waitingCount = 0;
    /** Twice the reference count, plus one for a block in the tree. @type {CowList<number>} */
    this.words = new CowList();
    /** The latest text of each token id; all copies share it. @type {string[]} */
    this.pieces = [];
    this.front = 0;
    this.back = 0;
    this.epoch = {};
  }

  /** A copy that goes its own way from here. @returns {State} */
  copy() {
    const copy = Object.assign(new State(), this);
    copy.free = this.free.copy();
    copy.requests = this.requests.copy();
    copy.nodes = this.nodes.copy();
    copy.words = this.words.copy();
    copy.counts = { ...this.counts };
    copy.epoch = {};
    this.epoch = {};
    return copy;
  }

  /** Applies the next event, which `parseLog` has checked. @param {Events.LogEvent} event */
  apply(event) {
    this.seq++;
    /** @type {any} */ (this)[event.type](event);
  }

  get blockSize() {
    return this.settings.block_size;
  }

  /** Reference count of a block: tables that name it, plus one while it is in the tree. */
  refs(/** @type {number} */ block) {
    return (this.words.get(block) ?? 0) >> 1;
  }

  /** Whether a block is in the tree. */
  inTree(/** @type {number} */ block) {
    return ((this.words.get(block) ?? 0) & 1) === 1;
  }

  /** Blocks that eviction can free: cached ones, but for those that somebody holds. */
  get evictable() {
    const held = new Set([...this.holds.values()].flatMap(({ table }) => table));
    let kept = 0;
    for (const block of held) {
      const word = this.words.get(block) ?? 0;
      kept += Number(kindOf(word - 2 * this.#holdsOf(block)) === "cached");
    }
    return this.counts.cached - kept;
  }

  /** Ids of the waiting requests, front to back. @returns {number[]} */
  waiting() {
    return this.requests
      .list()
      .filter((request) => request.place !== null)
      .sort((a, b) => Number(a.place) - Number(b.place))
      .map((request) => request.id);
  }

  /** Nodes from `node` up, without the root. @param {number} node @returns {NodeState[]} */
  path(node) {
    const path = [];
    for (let id = node; id !== ROOT; id = path[path.length - 1].parent) path.push(this.node(id));
    return path;
  }

  /** Blocks on the path from the root to the end of `node`. @param {number} node */
  depth(node) {
    let blocks = 0;
    for (let id = node; id !== ROOT; ) {
      const above = this.node(id);
      blocks += above.blocks.length;
      id = above.parent;
    }
    return blocks;
  }

  /** @param {number} id @returns {RequestState} */
  request(id) {
    const request = this.requests.get(id);
    if (!request) throw this.#wrong(`there is no request ${id}`);
    return request;
  }

  /** @param {number} id @returns {NodeState} */
  node(id) {
    const node = this.nodes.get(id);
    if (!node) throw this.#wrong(`there is no tree node ${id}`);
    return node;
  }

  /** The state in plain values, as Python's fold and the engine's snapshot give it. */
  core() {
    return {
      seq: this.seq,
      step: this.step,
      tick: this.tick,
      waiting: this.waiting(),
      running: [...this.running],
      plan: this.plan.map(([request, start, count, drafts]) => [
        request,
        start,
        count,
        [...drafts],
      ]),
      free: this.free.list(),
      refs: Array.from({ length: this.settings.num_blocks ?? 0 }, (_, block) => this.refs(block)),
      requests: this.requests.list().map((request) => ({
        id: request.id,
        root: request.root,
        sample: request.sample,
        prompt_length: request.promptLength,
        tokens: request.content.tokens.slice(0, request.length),
        computed: request.computed,
        table: [...request.table],
        lock: request.lock,
        slots: request.slots,
        preemptions: request.preemptions,
      })),
      nodes: this.nodes.list().map((node) => ({
        id: node.id,
        parent: node.parent,
        tokens: this.tokensOf(node),
        blocks: [...node.blocks],
        last: node.last,
        lock: node.lock,
      })),
      holds: [...this.holds.values()]
        .sort((a, b) => a.id - b.id)
        .map(({ id, table, lock }) => ({ id, table: [...table], lock })),
    };
  }

  /** A node's tokens. @param {NodeState} node */
  tokensOf({ content, from, blocks }) {
    return content.tokens.slice(from, from + blocks.length * this.blockSize);
  }

  /** The texts of a node's tokens. @param {NodeState} node */
  textsOf({ content, from, blocks }) {
    return content.texts.slice(from, from + blocks.length * this.blockSize);
  }

  // Helpers

  #wrong(/** @type {string} */ reason) {
    return new LogError(reason, { seq: this.seq });
  }

  /**
   * An object of this state to write to: itself, or a clone if a copy may see it.
   *
   * @template {RequestState | NodeState} T
   * @param {CowList<T>} pages
   * @param {T} item
   * @returns {T}
   */
  #own(pages, item) {
    if (item.epoch === this.epoch) return item;
    const own = { ...item, epoch: this.epoch };
    pages.set(item.id, own);
    return own;
  }

  /** One string for all tokens that read alike, not one per line. @returns {string} */
  #piece(/** @type {number} */ token, /** @type {string} */ text) {
    return this.pieces[token] === text ? this.pieces[token] : (this.pieces[token] = text);
  }

  #ownRequest(/** @type {number} */ id) {
    return this.#own(this.requests, this.request(id));
  }

  #put(/** @type {RequestState} */ request) {
    this.requests.set(request.id, { ...request, epoch: this.epoch });
    if (request.place !== null) this.waitingCount++;
  }

  /** A request as a keyframe writes it; a new one has less. @param {any} entry @param {number | null} place */
  #addRequest(entry, place) {
    const { id, root = id, sample = 0, tokens, texts, prompt_length, max_tokens } = entry;
    const { computed = 0, table = [], lock = ROOT, slots, preemptions = 0 } = entry;
    const { label, priority, sampling } = entry;
    this.#put({
      id,
      root,
      sample,
      promptLength: prompt_length ?? tokens.length,
      content: {
        tokens: [...tokens],
        texts: texts.map((/** @type {string} */ text, /** @type {number} */ index) =>
          this.#piece(tokens[index], text),
        ),
      },
      length: tokens.length,
      computed,
      table,
      lock,
      slots,
      preemptions,
      place,
      label,
      priority,
      maxTokens: max_tokens,
      sampling,
    });
  }

  /** Adds a node that no request has locked yet.
   * @param {Partial<NodeState> & Pick<NodeState, "id" | "parent" | "content" | "blocks">} node */
  #addNode(node) {
    const fresh = { from: 0, last: 0, lock: 0, used: null, epoch: this.epoch };
    this.nodes.set(node.id, { ...fresh, ...node, epoch: this.epoch });
  }

  /** Memory as it is when nothing is known but the settings. */
  #reset(/** @type {Settings} */ settings, /** @type {number[]} */ free) {
    this.settings = settings;
    this.counts.free = settings.num_blocks;
    for (const block of free) this.free.push(block);
    this.#addNode({ id: ROOT, parent: -1, content: { tokens: [], texts: [] }, blocks: [] });
  }

  /** Changes a block's word and the counts with it. @param {number} block @param {number} by */
  #count(block, by) {
    const before = this.words.get(block) ?? 0;
    const held = 2 * this.#holdsOf(block);
    this.counts[kindOf(before - held)]--;
    this.counts[kindOf(before + by - held)]++;
    this.words.set(block, before + by);
  }

  #holdsOf(/** @type {number} */ block) {
    let holds = 0;
    for (const { table } of this.holds.values()) holds += Number(table.includes(block));
    return holds;
  }

  /** References of a hold. A block that only holds read counts as cached: no request uses it. */
  #keep(/** @type {HoldState} */ hold) {
    this.holds = new Map(this.holds).set(hold.id, hold);
    for (const block of hold.table) this.words.set(block, (this.words.get(block) ?? 0) + 2);
  }

  #share(/** @type {number[]} */ blocks) {
    for (const block of blocks) this.#count(block, 2);
  }

  #take(/** @type {number[]} */ blocks) {
    for (const block of blocks) {
      // Off the end, unless a pool that somebody wrote takes another.
      if (!this.free.take(block)) throw this.#wrong(`takes block ${block}, which is not free`);
      this.#count(block, 2);
    }
  }

  #drop(/** @type {number[]} */ blocks) {
    for (let index = blocks.length - 1; index >= 0; index--) {
      const block = blocks[index];
      if (!this.refs(block)) throw this.#wrong(`gives back block ${block}, which nobody holds`);
      this.#count(block, -2);
      if (!this.refs(block)) this.free.push(block);
    }
  }

  /** Puts blocks that a request holds into the tree, or takes them out again. */
  #cache(/** @type {number[]} */ blocks, /** @type {1 | -1} */ by) {
    for (const block of blocks) this.#count(block, by);
    if (by > 0) this.#share(blocks);
    else this.#drop(blocks);
  }

  #lock(/** @type {{lock: number}} */ request, /** @type {number} */ node) {
    if (request.lock === ROOT && node === ROOT) return;
    this.tick++;
    if (node === request.lock) return this.#touch(node, 0);
    this.#touch(node, 1);
    this.#touch(request.lock, -1);
    request.lock = node;
  }

  #touch(/** @type {number} */ node, /** @type {1 | 0 | -1} */ by) {
    for (let id = node; id !== ROOT; ) {
      const own = this.#own(this.nodes, this.node(id));
      own.lock += by;
      own.last = this.tick;
      own.used = this.step;
      id = own.parent;
    }
  }

  #release(/** @type {RequestState} */ request) {
    this.#drop(request.table);
    request.table = [];
    request.computed = 0;
    this.#lock(request, ROOT);
  }

  // One method per kind of event, called as the event is

  run_started(/** @type {Events.RunStarted} */ { settings, classes }) {
    const blocks = Array.from({ length: settings.num_blocks }, (_, block) => block);
    this.#reset(/** @type {Settings} */ (settings), blocks.reverse());
    this.classes = classes;
  }

  request_arrived(/** @type {Events.RequestArrived} */ event) {
    const { request: id, prompt: tokens, n: slots } = event;
    this.#addRequest({ ...event, id, tokens, slots }, ++this.back);
  }

  step_started(/** @type {Events.StepStarted} */ event) {
    this.step = event.step;
  }

  admitted(/** @type {Events.Admitted} */ event) {
    const request = this.#ownRequest(event.request);
    request.place = null;
    this.waitingCount--;
    this.running = [...this.running, request.id];
    this.#share(event.blocks);
    request.table = event.blocks;
    request.computed = event.blocks.length * this.blockSize;
    this.#lock(request, event.node);
  }

  blocks_allocated(/** @type {Events.BlocksAllocated} */ event) {
    const request = this.#ownRequest(event.request);
    this.#take(event.blocks);
    request.table = request.table.concat(event.blocks);
  }

  block_copied(/** @type {Events.BlockCopied} */ event) {
    const request = this.#ownRequest(event.request);
    this.#take([event.block]);
    request.table = request.table.with(event.index, event.block);
    this.#drop([event.source]);
  }

  preempted(/** @type {Events.Preempted} */ event) {
    const request = this.#ownRequest(event.request);
    this.running = this.running.filter((id) => id !== request.id);
    this.#release(request);
    request.preemptions++;
    request.place = --this.front;
    this.waitingCount++;
  }

  radix_evicted(/** @type {Events.RadixEvicted} */ event) {
    const node = this.node(event.node);
    this.nodes.delete(node.id);
    this.#cache(node.blocks, -1);
  }

  step_scheduled(/** @type {Events.StepScheduled} */ event) {
    this.plan = event.rows.map(([request, start, count, drafts = []]) => [
      request,
      start,
      count,
      drafts,
    ]);
  }

  forked(/** @type {Events.Forked} */ event) {
    const parent = this.#ownRequest(event.parent);
    parent.slots = 1;
    this.#put({
      ...parent,
      id: event.request,
      sample: event.sample,
      content: {
        tokens: parent.content.tokens.slice(0, parent.length),
        texts: parent.content.texts.slice(0, parent.length),
      },
      lock: ROOT,
      preemptions: 0,
    });
    this.running = [...this.running, event.request];
    this.#share(parent.table);
    this.#lock(this.#ownRequest(event.request), parent.lock);
    const row = this.plan.find(([request]) => request === parent.id);
    if (row) this.plan = [...this.plan, [event.request, row[1], row[2], row[3]]];
  }

  step_finished(/** @type {Events.StepFinished} */ event) {
    for (const [id, start, count, drafts] of this.plan) {
      if (!this.requests.get(id)) continue; // the forward pass failed and ended it
      this.#ownRequest(id).computed = start + count - drafts.length;
    }
    for (const [id, ids, texts, accepted = 0] of event.tokens) {
      const request = this.#ownRequest(id);
      const { content } = request;
      for (let index = 0; index < ids.length; index++, request.length++) {
        if (request.length < content.tokens.length) continue; // it was folded before
        content.tokens.push(ids[index]);
        content.texts.push(this.#piece(ids[index], texts[index]));
      }
      request.computed += accepted;
    }
    this.plan = [];
  }

  blocks_trimmed(/** @type {Events.BlocksTrimmed} */ event) {
    const request = this.#ownRequest(event.request);
    this.#drop(request.table.slice(event.keep));
    request.table = request.table.slice(0, event.keep);
  }

  radix_split(/** @type {Events.RadixSplit} */ event) {
    const lower = this.#own(this.nodes, this.node(event.node));
    this.#addNode({ ...lower, id: event.upper, blocks: lower.blocks.slice(0, event.at) });
    lower.parent = event.upper;
    lower.from += event.at * this.blockSize;
    lower.blocks = lower.blocks.slice(event.at);
  }

  radix_joined(/** @type {Events.RadixJoined} */ event) {
    const request = this.#ownRequest(event.request);
    const start = this.depth(request.lock);
    const end = start + event.blocks.length;
    this.#share(event.blocks);
    this.#drop(request.table.slice(start, end));
    request.table = [
      ...request.table.slice(0, start),
      ...event.blocks,
      ...request.table.slice(end),
    ];
    this.#lock(request, event.node);
  }

  radix_inserted(/** @type {Events.RadixInserted} */ event) {
    const request = this.#ownRequest(event.request);
    const from = this.depth(request.lock) * this.blockSize;
    const { node: id, parent, blocks } = event;
    this.#addNode({ id, parent, content: request.content, from, blocks, used: this.step });
    this.#cache(event.blocks, 1);
    this.#lock(request, event.node);
  }

  radix_extended(/** @type {Events.RadixExtended} */ event) {
    const request = this.#ownRequest(event.request);
    const node = this.#own(this.nodes, this.node(event.node));
    // The request has the node's tokens too, and goes on where they end.
    node.content = request.content;
    node.from = (this.depth(node.id) - node.blocks.length) * this.blockSize;
    node.blocks = node.blocks.concat(event.blocks);
    this.#cache(event.blocks, 1);
    this.#lock(request, event.node);
  }

  request_finished(/** @type {Events.RequestFinished} */ event) {
    const request = this.#ownRequest(event.request);
    if (request.place !== null) this.waitingCount--;
    else this.running = this.running.filter((id) => id !== request.id);
    this.#release(request);
    this.requests.delete(request.id);
  }

  prefix_held(/** @type {Events.PrefixHeld} */ { hold: id, node, blocks, label }) {
    const hold = { id, table: blocks, lock: ROOT, label };
    this.#lock(hold, node);
    this.#keep(hold);
  }

  prefix_released(/** @type {Events.PrefixReleased} */ event) {
    const hold = this.holds.get(event.hold);
    if (!hold) throw this.#wrong(`there is no hold ${event.hold}`);
    this.holds = new Map(this.holds);
    this.holds.delete(hold.id);
    for (const block of hold.table) this.words.set(block, (this.words.get(block) ?? 0) - 2);
    this.#lock({ ...hold }, ROOT);
  }

  keyframe(/** @type {Events.Keyframe} */ { seq, state }) {
    Object.assign(this, new State());
    this.#reset(state.settings, state.free);
    this.classes = state.classes ?? {}; // older logs have none
    this.seq = seq;
    this.step = state.step;
    this.tick = state.tick;
    this.running = state.running;
    this.step_scheduled({ type: "step_scheduled", rows: state.plan, skipped: [] });
    for (const { id, parent, tokens, texts, blocks, last } of state.nodes) {
      if (id === ROOT) continue;
      this.#addNode({ id, parent, content: { tokens, texts }, blocks, last });
      this.#cache(blocks, 1);
    }
    const place = new Map(state.waiting.map((/** @type {number} */ id) => [id, ++this.back]));
    for (const entry of state.requests) {
      this.#addRequest(entry, place.get(entry.id) ?? null);
      this.#share(entry.table);
      for (const node of this.path(entry.lock)) node.lock++;
    }
    for (const hold of state.holds ?? []) {
      this.#keep(hold);
      for (const node of this.path(hold.lock)) node.lock++;
    }
  }
}

/** What a block is, by its word: see `State.words`. @param {number} word */
function kindOf(word) {
  if (word < 2) return "free";
  const holders = (word >> 1) - (word & 1);
  return holders === 0 ? "cached" : holders === 1 ? "unshared" : "shared";
}
