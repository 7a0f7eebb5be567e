/**
 * The fold: computes the engine's state from its events. `engine/core/log/fold.py` does the same in Python, and a
 * golden test checks that the two agree after every event.
 *
 * Applying events 0..k gives exactly the state the engine had after event k. Three helpers do most of the work:
 * `#allocate` takes blocks from the free stack, `#decref` drops references, `#lock` counts the requests that lock a
 * path of the tree.
 *
 * `copy()` is cheap even for a large state, because unchanged parts are shared (copy on write). Lists of blocks and
 * of running requests are therefore replaced, never changed in place. Requests and nodes are changed through
 * `#writable`, which clones one that a copy may share. Token lists only grow, and folding the same events again finds
 * the same tokens at the same positions, so all copies share them: a request has its length, a node its offset.
 */

import { CowList } from "./cow_list.ts";
import type { Events, Facts, LogEvent } from "./events.ts";
import { added, type Loads, unpacked } from "./expert_loads.ts";
import { type Lane, laneOf, leaveLane, takeLane } from "./lanes.ts";
import { LogError } from "./log.ts";
import type { RequestSpan } from "./request_spans.ts";

/**
 * hashes: of the prompt's full blocks, in a
 *   foreign log without token ids
 */
export type Content = {
  tokens: number[];
  texts: string[];
  hashes?: string[];
  logprobs?: number[]; // of the outputs, see `RequestSpan`
};

/** of the engine */
type Settings = {
  token_budget: number;
  max_batch_size: number;
  num_blocks: number;
  block_size: number;
} & Record<string, any>;

/** A live request with the names of `Request`; `content` takes the place of its tokens. */
export interface RequestState extends Omit<Events["RequestState"], "tokens" | "texts"> {
  content: Content; // the first `length` tokens of it are the request's
  length: number;
  place: number | null; // waiting: position in the queue, smaller is earlier; null: running
  epoch?: object; // the state that may change it in place, as in NodeState
}

/** a held prefix, which no request needs to use; never changed */
type HoldState = Required<Events["HoldState"]>;

type NodeFields = Omit<Events["NodeRecord"], "tokens" | "texts">;

/** a run of blocks of the radix tree, or a block of the hash cache */
export interface NodeState extends NodeFields {
  content: Content; // its tokens are those from `from` on, a block's worth per block
  from: number;
  blocks: number[];
  copies: number[];
  last: number;
  lock_ref: number;
  used: number | null; // step of the latest use; null: before the log begins
  below: number; // hash cache: the nodes directly below it
  epoch?: object; // the state that may change it in place
}

type FreshNode = Partial<NodeState> & Pick<NodeState, "id" | "parent" | "content" | "blocks">;

const ROOT = 0;
const MAX_BLOCKS = 4_000_000; // as in visualizer/sources/limits.py: a damaged number would fill the memory

type PlannedRow = [request: number, start: number, count: number, drafts: number[]];
export type LogSource = {
  engine?: string;
  recorder?: string;
  facts?: Record<string, string>;
  groups?: string[];
};

export type Tiers = Record<"host" | "disk", Map<number, string>>;

export class State {
  seq = -1;
  step = 0;
  tick = 0;
  /** Whether steps run only on demand. */
  paused = false;
  settings = {} as Settings;
  /** The class of each replaceable part, as in run_started. */
  classes: Record<string, string> = {};
  /** Where a foreign log comes from, as in run_started. */
  source: LogSource = {};
  running: number[] = [];
  /** Maps a scheduled, unfinished step to its rows, which are replaced and never changed. */
  plans: Map<number, PlannedRow[]> = new Map();
  /** The blocks that have a window page, if the model has sliding layers; the set is replaced, never changed. */
  windowPages: Set<number> | null = null;
  /** Memory below the GPU: the text of each used place, the next one to be dropped first; replaced, never changed. */
  tiers: Tiers | null = null;
  /** The LoRA adapter in each slot, "" for none; replaced, never changed. */
  adapters: string[] = [];
  free: CowList<number> = new CowList();
  /** Hash cache: evictable blocks, the next one first; replaced, never changed. */
  queue: number[] = [];
  requests: CowList<RequestState> = new CowList();
  nodes: CowList<NodeState> = new CowList();
  /** Replaced, never changed in place: copies share it. */
  holds: Map<number, HoldState> = new Map();
  /** The latest counts of a foreign log that has only counts. */
  reported: Events["step_reported"] | null = null;
  /** How many tokens each expert has computed so far; replaced, never changed. */
  expertLoads: Loads = [];
  /** The lanes by their number (see `lanes.ts`); the list is replaced, never changed. */
  lanes: Lane[] = [];
  /** The number of blocks of each kind; together, all blocks. */
  counts = { unshared: 0, shared: 0, cached: 0, free: 0 };
  waitingCount = 0;
  /** The waiting requests that were preempted. */
  suspendedCount = 0;
  /** One more than the highest number of a block that was ever allocated. */
  reach = 0;
  /** Twice the reference count, plus one for a cached block. */
  blockWords: CowList<number> = new CowList();
  /** The latest text of each token id; all copies share it. */
  pieces: string[] = [];
  front = 0;
  back = 0;
  epoch = {};

  /** An independent copy. */
  copy(): State {
    const copy = Object.assign(new State(), this);
    copy.free = this.free.copy();
    copy.requests = this.requests.copy();
    copy.nodes = this.nodes.copy();
    copy.blockWords = this.blockWords.copy();
    copy.counts = { ...this.counts };
    copy.epoch = {};
    this.epoch = {};
    return copy;
  }

  /** Applies the next event, which `LogLines` has checked. */
  apply(event: LogEvent) {
    this.seq++;
    (this as any)[event.type](event);
  }

  get blockSize() {
    return this.settings.block_size;
  }

  /** Whether the prefix cache is a hash table, not a radix tree. */
  get isHashed() {
    return this.settings.prefix_cache === "hash";
  }

  /** Reference count of a block: the tables that contain it, plus one while it is cached. */
  refs(block: number) {
    return (this.blockWords.get(block) ?? 0) >> 1;
  }

  /** Whether a block is cached. */
  inTree(block: number) {
    return ((this.blockWords.get(block) ?? 0) & 1) === 1;
  }

  /** The number of blocks that eviction can free: cached ones without those of held prefixes. */
  get evictable() {
    const held = new Set([...this.holds.values()].flatMap(({ block_table }) => block_table));
    let kept = 0;
    for (const block of held) {
      const word = this.blockWords.get(block) ?? 0;
      kept += Number(kindOf(word - 2 * this.#holdsOf(block)) === "cached");
    }
    return this.counts.cached - kept;
  }

  /** The seats that running requests take, one per sample. */
  get seats() {
    return this.running.reduce((sum, id) => sum + this.request(id).num_seqs, 0);
  }

  /** Ids of the waiting requests, front to back. */
  waiting(): number[] {
    return this.requests
      .list()
      .filter((request) => request.place !== null)
      .sort((a, b) => Number(a.place) - Number(b.place))
      .map((request) => request.id);
  }

  /** Nodes from `node` up, without the root. */
  path(node: number): NodeState[] {
    const path = [];
    for (let id = node; id !== ROOT; id = path[path.length - 1].parent) path.push(this.node(id));
    return path;
  }

  /** Blocks on the path from the root to the end of `node`. */
  depth(node: number) {
    return this.path(node).reduce((sum, { blocks }) => sum + blocks.length, 0);
  }

  /** How many tokens of the prefix that ends at a node were adopted, and from where. */
  adoptedPrefix(id: number) {
    const nodes = this.path(id).filter(({ source }) => source);
    const blocks = nodes.reduce((sum, node) => sum + node.blocks.length, 0);
    const source = [...new Set(nodes.map((node) => node.source))].join(" and ");
    return { adopted: blocks * this.blockSize, source };
  }

  request(id: number): RequestState {
    const request = this.requests.get(id);
    if (!request) throw this.#error(`there is no request ${id}`);
    return request;
  }

  node(id: number): NodeState {
    const node = this.nodes.get(id);
    if (!node) throw this.#error(`there is no tree node ${id}`);
    return node;
  }

  /** The rows of the current step; none before it is scheduled and after it finished. */
  get plan() {
    return this.plans.get(this.step) ?? [];
  }

  /** A request's rows in steps before the current one that are still computed. */
  inFlight(id: number) {
    return [...this.plans].flatMap(([step, rows]) =>
      step === this.step ? [] : rows.filter(([request]) => request === id),
    );
  }

  /** How many tokens of a request are computed or in flight. */
  scheduledTokens(id: number) {
    const counts = this.inFlight(id).map(([, , count]) => count);
    return counts.reduce((sum, count) => sum + count, this.request(id).num_computed_tokens);
  }

  /**
   * The blocks of a cached prefix that a request can use; `usable_prefix` in `engine/core/log/state.py` explains it.
   *
   * @param copies of each block, the oldest first
   */
  usablePrefix(copies: number[][]) {
    const { windowPages: pages, blockSize: size } = this;
    if (!pages) return copies.map(([oldest]) => oldest);
    const blocks = copies.map((same) => same.find((one) => pages.has(one)) ?? same[0]);
    const before = this.settings.window - 1;
    let longest = 0;
    let inARow = 0;
    for (const [index, block] of blocks.entries()) {
      inARow = pages.has(block) ? inARow + 1 : 0;
      if (inARow * size >= Math.min(before, (index + 1) * size)) longest = index + 1;
    }
    return blocks.slice(0, longest);
  }

  /** A node's tokens. */
  tokensOf({ content, from, blocks }: NodeState) {
    return content.tokens.slice(from, from + blocks.length * this.blockSize);
  }

  /** The texts of a node's tokens. */
  textsOf({ content, from, blocks }: NodeState) {
    return content.texts.slice(from, from + blocks.length * this.blockSize);
  }

  // Helpers

  #error(reason: string) {
    return new LogError(reason, { seq: this.seq });
  }

  /** An object that this state may change: itself, or a clone if a copy may share it. */
  #writable<T extends RequestState | NodeState>(pages: CowList<T>, item: T): T {
    if (item.epoch === this.epoch) return item;
    const own = { ...item, epoch: this.epoch };
    pages.set(item.id, own);
    return own;
  }

  /** Shares one string between all tokens with the same text. */
  #piece(token: number, text: string): string {
    return this.pieces[token] === text ? this.pieces[token] : (this.pieces[token] = text);
  }

  #writableRequest(id: number) {
    return this.#writable(this.requests, this.request(id));
  }

  /** Gives a request a lane, unless it has one. */
  #takeLane(id: number) {
    if (laneOf(this.lanes, id) >= 0) return;
    const { label } = this.request(id);
    const { step } = this;
    const { max_batch_size: seats } = this.settings;
    this.lanes = takeLane(this.lanes, { request: id, label, step, seats });
  }

  #addRequestState(request: RequestState) {
    request.epoch = this.epoch;
    this.requests.set(request.id, request);
    if (request.place === null) return;
    this.waitingCount++;
    if (request.preemptions) this.suspendedCount++;
  }

  #withContent(
    { tokens, texts, extra_key = [], group_tables = [], ...request }: Events["RequestState"],
    hashes?: string[],
  ): Omit<RequestState, "place"> {
    const pieces = texts.map((text, index) => this.#piece(tokens[index], text));
    const content = { tokens: [...tokens], texts: pieces, hashes };
    return { ...request, content, length: tokens.length, extra_key, group_tables };
  }

  /** Adds a node that no request has locked yet. */
  #addNode(node: FreshNode) {
    const fresh = {
      from: 0,
      copies: [],
      last: 0,
      lock_ref: 0,
      used: null,
      below: 0,
      extra_key: [],
    };
    this.nodes.set(node.id, { ...fresh, ...node, epoch: this.epoch });
    if (this.isHashed) this.#countBelow(node.parent, 1);
  }

  #addCopies(known: NodeState, blocks: number[]) {
    const node = this.#writable(this.nodes, known);
    node.copies = [...node.copies, ...blocks];
  }

  #countBelow(parent: number, by: 1 | -1) {
    const above = this.nodes.get(parent);
    if (above) this.#writable(this.nodes, above).below += by;
  }

  /** Resets the memory; by default all blocks are free. */
  #reset(settings: Settings, free?: number[]) {
    if (settings.num_blocks > MAX_BLOCKS)
      throw this.#error(`num_blocks must be at most ${MAX_BLOCKS}, got ${settings.num_blocks}`);
    this.settings = settings;
    this.windowPages = settings.num_window_pages === undefined ? null : new Set();
    const hasTiers = settings.host_kv_tokens || settings.disk_kv_tokens;
    this.tiers = hasTiers ? { host: new Map(), disk: new Map() } : null;
    this.counts.free = settings.num_blocks;
    if (free) for (const block of free) this.free.push(block);
    else for (let block = settings.num_blocks; block-- > 0; ) this.free.push(block);
    this.#addNode({ id: ROOT, parent: -1, content: { tokens: [], texts: [] }, blocks: [] });
  }

  /** Changes a block's word and updates the counts. */
  #count(block: number, by: number) {
    const before = this.blockWords.get(block) ?? 0;
    const held = this.holds.size && 2 * this.#holdsOf(block);
    const kind = kindOf(before - held);
    const next = kindOf(before + by - held);
    if (kind !== next) {
      this.counts[kind]--;
      this.counts[next]++;
      if (next === "free") this.#takePages([block]);
    }
    this.blockWords.set(block, before + by);
  }

  #givePages(blocks: number[]) {
    if (this.windowPages) this.windowPages = new Set([...this.windowPages, ...blocks]);
  }

  #takePages(blocks: number[]) {
    if (!blocks.some((block) => this.windowPages?.has(block))) return;
    this.windowPages = new Set(this.windowPages);
    for (const block of blocks) this.windowPages.delete(block);
  }

  #holdsOf(block: number) {
    let holds = 0;
    for (const { block_table } of this.holds.values()) holds += Number(block_table.includes(block));
    return holds;
  }

  /** Adds a hold's references. A block that only holds use counts as cached, because no request uses it. */
  #addHold(hold: HoldState) {
    this.holds = new Map(this.holds).set(hold.id, hold);
    for (const block of hold.block_table)
      this.blockWords.set(block, (this.blockWords.get(block) ?? 0) + 2);
  }

  #incref(blocks: number[]) {
    for (const block of blocks) this.#count(block, 2);
  }

  #allocate(blocks: number[]) {
    for (const block of blocks) {
      // The last block, unless a custom block pool chose another.
      if (!this.free.take(block)) throw this.#error(`allocates block ${block}, which is not free`);
      this.#count(block, 2);
      this.reach = Math.max(this.reach, block + 1);
    }
    this.#givePages(blocks);
  }

  /**
   * Drops references of a block table. With the radix tree the first of its free blocks is allocated first, otherwise
   * the last. With the hash cache, a block that is only cached joins the eviction queue, the tail of the table first.
   */
  #decref(blocks: number[]) {
    const tailFirst = this.isHashed || this.settings.prefix_cache === "off";
    for (const block of tailFirst ? blocks : blocks.toReversed()) {
      if (!this.refs(block)) throw this.#error(`frees block ${block}, which has no references`);
      this.#count(block, -2);
      if (!this.refs(block)) this.free.push(block);
    }
    this.#enqueue(blocks);
  }

  #enqueue(released: number[]) {
    if (!this.isHashed) return;
    const idle = released.filter((block) => this.inTree(block) && this.refs(block) === 1);
    if (idle.length) this.queue = this.queue.concat(idle.toReversed());
  }

  #dequeue(blocks: number[]) {
    if (!this.isHashed || !blocks.length) return;
    const used = new Set(blocks);
    this.queue = this.queue.filter((block) => !used.has(block));
  }

  /** Adds blocks of a request to the tree, or removes them. */
  #cache(blocks: number[], by: 1 | -1) {
    for (const block of blocks) this.#count(block, by);
    if (by > 0) this.#incref(blocks);
    else this.#decref(blocks);
  }

  #lock(holder: { last_node: number }, node: number) {
    if (holder.last_node === ROOT && node === ROOT) return;
    if (this.isHashed) {
      for (const end of [node, holder.last_node]) {
        for (const { id } of this.path(end)) {
          this.#writable(this.nodes, this.node(id)).used = this.step;
        }
      }
      holder.last_node = node;
      return;
    }
    this.tick++;
    if (node === holder.last_node) return this.#touch(node, 0);
    this.#touch(node, 1);
    this.#touch(holder.last_node, -1);
    holder.last_node = node;
  }

  #touch(node: number, by: 1 | 0 | -1) {
    for (let id = node; id !== ROOT; ) {
      const own = this.#writable(this.nodes, this.node(id));
      own.lock_ref += by;
      if (by >= 0) own.last = this.tick; // giving up a lock is no access
      own.used = this.step;
      id = own.parent;
    }
  }

  #release(request: RequestState) {
    this.#decref(heldBlocks(request));
    request.block_table = request.group_tables = [];
    request.num_computed_tokens = 0;
    this.#lock(request, ROOT);
  }

  #countLock(node: number) {
    if (!this.isHashed) for (const above of this.path(node)) above.lock_ref++;
  }

  // One method per kind of event, with the event's name

  run_started({ settings, classes, source }: Events["run_started"]) {
    this.#reset(settings as Settings);
    this.classes = classes;
    this.source = source ?? {};
  }

  request_arrived(event: Events["request_arrived"]) {
    const { type, t, request: id, prompt, output = [], sample = 0, n, hashes, ...rest } = event;
    const tokens = output.length ? prompt.concat(output) : prompt;
    const own = { id, root: id, sample, prompt_length: prompt.length, tokens, num_seqs: n };
    const none = { num_computed_tokens: 0, block_table: [], last_node: ROOT, preemptions: 0 };
    const request = this.#withContent({ ...own, ...none, ...rest }, hashes);
    this.#addRequestState({ ...request, place: output.length ? --this.front : ++this.back });
  }

  step_started(event: Events["step_started"]) {
    this.step = event.step;
  }

  admitted(event: Events["admitted"]) {
    const request = this.#writableRequest(event.request);
    request.place = null;
    this.waitingCount--;
    if (request.preemptions) this.suspendedCount--;
    this.running = [...this.running, request.id];
    this.#takeLane(request.id);
    this.#incref(event.blocks);
    this.#dequeue(event.blocks);
    request.block_table = event.blocks;
    request.num_computed_tokens = event.blocks.length * this.blockSize;
    this.#lock(request, event.node);
    if (this.isHashed) this.#knowFound(request, event.node);
  }

  /** Who computed unknown tokens that a request found may have no hash of them, because they are its output. */
  #knowFound({ content, prompt_length }: RequestState, end: number) {
    let from = 0;
    for (const { id } of this.path(end).reverse()) {
      const node = this.#writable(this.nodes, this.node(id));
      const isKnown = node.content.tokens[node.from] !== -1;
      if (isKnown || from + this.blockSize > prompt_length) return;
      Object.assign(node, { content, from });
      from += this.blockSize;
    }
  }

  blocks_allocated(event: Events["blocks_allocated"]) {
    const request = this.#writableRequest(event.request);
    this.#allocate(event.blocks);
    request.block_table = request.block_table.concat(event.blocks);
  }

  group_table_changed({ request: id, group, changes }: Events["group_table_changed"]) {
    const request = this.#writableRequest(id);
    const tables = [...(request.group_tables ?? [])];
    while (tables.length < group) tables.push([]);
    const table = [...tables[group - 1]];
    for (const [index, block] of changes) {
      if (index >= this.settings.num_blocks) throw this.#error(`changes index ${index} of a table`);
      while (table.length <= index) table.push(-1);
      const old = table[index];
      table[index] = block;
      if (block >= 0 && this.refs(block)) this.#count(block, 2);
      else if (block >= 0) this.#allocate([block]);
      if (old >= 0) this.#decref([old]);
    }
    tables[group - 1] = table;
    request.group_tables = tables;
  }

  block_copied(event: Events["block_copied"]) {
    const request = this.#writableRequest(event.request);
    this.#allocate([event.block]);
    request.block_table = request.block_table.with(event.index, event.block);
    this.#decref([event.source]);
  }

  preempted(event: Events["preempted"]) {
    const request = this.#writableRequest(event.request);
    for (const [step, rows] of this.plans) {
      const others = rows.filter(([id]) => id !== request.id);
      this.#setPlan(step, others);
    }
    this.running = this.running.filter((id) => id !== request.id);
    this.#release(request);
    request.preemptions++;
    const atFront = (this.settings.scheduler ?? "vllm") === "vllm"; // with SGLang's, at the back
    request.place = atFront ? --this.front : ++this.back;
    this.waitingCount++;
    this.suspendedCount++;
  }

  radix_evicted(event: Events["radix_evicted"]) {
    const node = this.node(event.node);
    this.nodes.delete(node.id);
    this.#cache(node.blocks, -1);
  }

  step_scheduled(event: Events["step_scheduled"]) {
    this.#setPlan(this.step, event.rows.map(withDrafts));
  }

  #setPlan(step: number, rows: PlannedRow[] | null) {
    this.plans = new Map(this.plans);
    if (rows) this.plans.set(step, rows);
    else this.plans.delete(step);
  }

  forked(event: Events["forked"]) {
    const parent = this.#writableRequest(event.parent);
    parent.num_seqs = 1;
    this.#addRequestState({
      ...parent,
      id: event.request,
      sample: event.sample,
      content: {
        tokens: parent.content.tokens.slice(0, parent.length),
        texts: parent.content.texts.slice(0, parent.length),
        hashes: parent.content.hashes,
      },
      last_node: ROOT,
      preemptions: 0,
    });
    this.running = [...this.running, event.request];
    this.#takeLane(event.request);
    this.#incref(parent.block_table);
    this.#lock(this.#writableRequest(event.request), parent.last_node);
    for (const [step, rows] of this.plans) {
      const row = rows.find(([request]) => request === parent.id);
      if (row) this.#setPlan(step, [...rows, [event.request, row[1], row[2], row[3]]]);
    }
  }

  step_finished(event: Events["step_finished"]) {
    const { step, wasted = [] } = event;
    // Rows are read by index: they are half of a log, and an iterator for each takes as long as the rest.
    for (const row of this.plans.get(step) ?? []) {
      const request = this.requests.get(row[0]);
      if (!request || wasted.includes(row[0])) continue; // it ended, or its step was dropped
      this.#writable(this.requests, request).num_computed_tokens = row[1] + row[2] - row[3].length;
    }
    for (const row of event.tokens) {
      const request = this.#writableRequest(row[0]);
      const { tokens, texts } = request.content;
      const ids = row[1];
      for (let index = 0; index < ids.length; index++, request.length++) {
        if (request.length < tokens.length) continue; // it has been folded before
        tokens.push(ids[index]);
        texts.push(this.#piece(ids[index], row[2][index]));
      }
      request.num_computed_tokens += row[3] ?? 0;
    }
    this.#setPlan(step, null);
    if (event.expert_loads)
      this.expertLoads = added(this.expertLoads, unpacked(event.expert_loads));
  }

  blocks_trimmed(event: Events["blocks_trimmed"]) {
    const request = this.#writableRequest(event.request);
    this.#decref(request.block_table.slice(event.keep));
    request.block_table = request.block_table.slice(0, event.keep);
    request.num_computed_tokens = Math.min(
      request.num_computed_tokens,
      event.keep * this.blockSize,
    );
    if (!this.isHashed) return;
    const path = this.path(request.last_node);
    if (path.length > event.keep) request.last_node = path.at(-event.keep)?.id ?? ROOT;
    if (!event.keep) request.last_node = ROOT;
  }

  radix_split(event: Events["radix_split"]) {
    const lower = this.#writable(this.nodes, this.node(event.node));
    this.#addNode({ ...lower, id: event.upper, blocks: lower.blocks.slice(0, event.at) });
    lower.parent = event.upper;
    lower.last = this.tick + 1; // the access that follows counts for it, too
    lower.used = this.step;
    lower.from += event.at * this.blockSize;
    lower.blocks = lower.blocks.slice(event.at);
    lower.extra_key = [];
  }

  radix_joined(event: Events["radix_joined"]) {
    const request = this.#writableRequest(event.request);
    const start = this.depth(request.last_node);
    const end = start + event.blocks.length;
    const own = request.block_table.slice(start, end);
    for (const [index, block] of event.blocks.entries()) {
      if (!this.windowPages?.has(own[index]) || this.windowPages.has(block)) continue;
      this.#takePages([own[index]]);
      this.#givePages([block]);
    }
    this.#incref(event.blocks);
    this.#decref(own);
    request.block_table = [
      ...request.block_table.slice(0, start),
      ...event.blocks,
      ...request.block_table.slice(end),
    ];
    this.#lock(request, event.node);
  }

  radix_inserted(event: Events["radix_inserted"]) {
    const request = this.#writableRequest(event.request);
    const from = this.depth(request.last_node) * this.blockSize;
    const { node: id, parent, blocks } = event;
    const extra_key = (parent === ROOT && request.extra_key) || [];
    this.#addNode({
      id,
      parent,
      content: request.content,
      from,
      blocks,
      used: this.step,
      extra_key,
    });
    this.#cache(event.blocks, 1);
    this.#lock(request, event.node);
  }

  radix_extended(event: Events["radix_extended"]) {
    const request = this.#writableRequest(event.request);
    const node = this.#writable(this.nodes, this.node(event.node));
    // The request has the node's tokens too and continues after them.
    node.content = request.content;
    node.from = (this.depth(node.id) - node.blocks.length) * this.blockSize;
    node.blocks = node.blocks.concat(event.blocks);
    this.#cache(event.blocks, 1);
    this.#lock(request, event.node);
  }

  blocks_stored(event: Events["blocks_stored"]) {
    const request = this.#writableRequest(event.request);
    let from = this.depth(request.last_node) * this.blockSize;
    let { parent } = event;
    for (const [index, id] of event.nodes.entries()) {
      const block = event.blocks[index];
      const known = this.nodes.get(id);
      if (known) this.#addCopies(known, [block]);
      else {
        const extra_key = (parent === ROOT && request.extra_key) || [];
        this.#addNode({ id, parent, content: request.content, from, blocks: [block], extra_key });
      }
      parent = id;
      from += this.blockSize;
    }
    this.#cache(event.blocks, 1);
    this.#lock(request, parent);
  }

  block_evicted(event: Events["block_evicted"]) {
    const { hash } = this.node(event.node);
    this.#removeCopy(event);
    if (hash) return; // the number is the reader's: no memory is known to be free
    this.#dequeue([event.block]);
    // Below the blocks that are free already: those are allocated first.
    const free = this.free.list();
    this.free = new CowList();
    for (const block of [event.block, ...free]) this.free.push(block);
  }

  blocks_moved({
    source,
    target,
    reason,
    blocks,
    slots,
    request = -1,
    texts = [],
  }: Events["blocks_moved"]) {
    const tiers = { ...this.tiers } as Tiers;
    const from = tiers[source as keyof Tiers] && new Map(tiers[source as keyof Tiers]);
    let moved = texts;
    if (from) {
      tiers[source as keyof Tiers] = from;
      moved = blocks.map((slot) => {
        const text = from.get(slot);
        if (text === undefined) throw this.#error(`place ${slot} of ${source} is empty`);
        return text;
      });
      const used = reason === "used";
      if (used || reason === "room" || !target) for (const slot of blocks) from.delete(slot);
      if (used) for (let i = blocks.length; i-- > 0; ) from.set(blocks[i], moved[i]);
    }
    if (target === "gpu")
      this.#writableRequest(request).num_computed_tokens += slots.length * this.blockSize;
    else if (target && target !== source) {
      const into = new Map(tiers[target]);
      slots.forEach((slot, i) => into.set(slot, moved[i]));
      tiers[target] = into;
    }
    this.tiers = tiers;
  }

  window_pages_evicted({ blocks }: Events["window_pages_evicted"]) {
    this.#takePages(blocks);
  }

  block_withdrawn(event: Events["block_withdrawn"]) {
    this.#writableRequest(event.request).last_node = this.node(event.node).parent;
    this.#removeCopy(event);
  }

  #removeCopy({ node: id, block }: { node: number; block: number }) {
    let node = this.#writable(this.nodes, this.node(id));
    const all = [...node.blocks, ...node.copies];
    const copies = all.filter((one) => one !== block);
    node.blocks = copies.slice(0, 1);
    node.copies = copies.slice(1);
    node.media = node.media?.toSpliced(all.indexOf(block), 1);
    while (node.id !== ROOT && !node.blocks.length && !node.below) {
      this.nodes.delete(node.id);
      this.#countBelow(node.parent, -1);
      node = this.node(node.parent);
    }
    this.#count(block, -3); // neither cached nor referenced
  }

  request_finished(event: Events["request_finished"]) {
    const request = this.#writableRequest(event.request);
    if (request.place !== null) {
      this.waitingCount--;
      if (request.preemptions) this.suspendedCount--;
    } else this.running = this.running.filter((id) => id !== request.id);
    if (!this.isHashed && request.num_computed_tokens >= request.prompt_length) {
      for (const { id } of this.path(request.last_node))
        this.#writable(this.nodes, this.node(id)).last = this.tick + 1;
    }
    this.#release(request);
    this.requests.delete(request.id);
    this.lanes = leaveLane(this.lanes, request.id, this.step);
  }

  prefix_held({ hold: id, node, blocks, label }: Events["prefix_held"]) {
    const hold = { id, block_table: blocks, last_node: ROOT, label };
    this.#lock(hold, node);
    this.#addHold(hold);
    this.#dequeue(blocks);
  }

  prefix_released(event: Events["prefix_released"]) {
    const hold = this.holds.get(event.hold);
    if (!hold) throw this.#error(`there is no hold ${event.hold}`);
    this.holds = new Map(this.holds);
    this.holds.delete(hold.id);
    for (const block of hold.block_table)
      this.blockWords.set(block, (this.blockWords.get(block) ?? 0) - 2);
    this.#enqueue(hold.block_table);
    this.#lock({ ...hold }, ROOT);
  }

  prefix_adopted(event: Events["prefix_adopted"]) {
    const { nodes, blocks, tokens, texts, source } = event;
    const prefix = this.path(event.parent)
      .reverse()
      .flatMap((node) => node.blocks);
    this.#allocate(blocks);
    this.#takePages(blocks.slice(0, blocks.length - (event.window_pages ?? 0)));
    const share = blocks.length / nodes.length; // blocks per node
    let { parent } = event;
    for (const [index, id] of nodes.entries()) {
      const own = blocks.slice(index * share, (index + 1) * share);
      const from = index * share * this.blockSize;
      const known = this.nodes.get(id);
      if (known) this.#addCopies(known, own);
      else this.#addNode({ id, parent, content: { tokens, texts }, from, blocks: own, source });
      parent = id;
    }
    // The references of the allocation become those of the owner below.
    this.#cache(blocks, 1);
    // An access: as if a request had attached the prefix and released it.
    const owner = { last_node: ROOT };
    this.#incref(prefix);
    this.#dequeue(prefix);
    this.#lock(owner, parent);
    this.#decref([...prefix, ...blocks]);
    this.#lock(owner, ROOT);
  }

  blocks_reported(event: Events["blocks_reported"]) {
    const { nodes, blocks, tokens, hashes, medium } = event;
    const content = { tokens, texts: new Array(tokens.length).fill("") };
    let { parent } = event;
    for (const [index, id] of nodes.entries()) {
      const known = this.nodes.get(id);
      if (!known) {
        this.#addNode({ id, parent, content, blocks: [], hash: hashes[index], media: [] });
      } else if (!known.blocks.length && known.parent !== parent) {
        this.#countBelow(known.parent, -1); // now it is known what comes before
        this.#countBelow(parent, 1);
        this.#writable(this.nodes, this.node(id)).parent = parent;
      }
      if (blocks.length) {
        const node = this.#writable(this.nodes, this.node(id));
        node.media = [...(node.media ?? []), medium];
        node.used = this.step;
        if (node.blocks.length) node.copies = [...node.copies, blocks[index]];
        else
          Object.assign(node, { blocks: [blocks[index]], content, from: index * this.blockSize });
      }
      parent = id;
    }
    this.#cacheReported(blocks);
  }

  #cacheReported(blocks: number[]) {
    let { num_blocks } = this.settings;
    for (const block of blocks) {
      if (block > num_blocks) throw this.#error(`reports block ${block} before ${num_blocks}`);
      if (block === num_blocks) {
        // As many blocks as were ever cached at once.
        num_blocks++;
        this.counts.free++;
      }
    }
    this.settings = { ...this.settings, num_blocks };
    this.reach = num_blocks;
    this.#cache(blocks, 1);
  }

  step_reported(event: Events["step_reported"]) {
    this.reported = event;
    this.waitingCount = event.waiting;
  }

  adapter_changed({ slot, adapter }: Events["adapter_changed"]) {
    const slots = Array.from({ length: this.settings.max_loras }, (_, i) => this.adapters[i] ?? "");
    slots[slot] = adapter;
    this.adapters = slots.some(Boolean) ? slots : [];
  }

  engine_paused() {
    this.paused = true;
  }

  engine_resumed() {
    this.paused = false;
  }

  events_missing() {} // a gap changes nothing that is known

  /** Becomes a state of an index, which stores once what stays the same of a request: `spanOf` has that. */
  restore(
    { state, contents, reach, ...slice }: Facts["slice"],
    spanOf: (id: number) => RequestSpan,
  ) {
    const requests = slice.requests.map((row) => {
      const [id, length, num_computed_tokens, block_table, last_node, num_seqs, preemptions] = row;
      const [, , , , , , , extra_key, group_tables] = row;
      const span = spanOf(id);
      const { root, sample, label, priority, sampling, content } = span;
      const { promptLength: prompt_length, maxTokens: max_tokens } = span;
      const fixed = { id, root, sample, prompt_length, label, priority, max_tokens, sampling };
      const own = { num_computed_tokens, block_table, last_node, num_seqs, preemptions };
      return { ...fixed, ...own, content, length, extra_key, group_tables };
    });
    let next = 0;
    const nodes = slice.nodes.map((row) => {
      const [
        id,
        parent,
        last,
        ,
        origin,
        from,
        used,
        blocks,
        copies,
        source,
        hash,
        media,
        extra_key,
      ] = row;
      const [tokens, texts = []] = origin < 0 ? contents[next++] : [];
      const content = tokens ? { tokens, texts } : spanOf(origin).content;
      const own = { last, from, used, blocks, copies, source, hash, media, extra_key };
      return { id, parent, content, ...own };
    });
    Object.assign(this, new State());
    this.#become(state, nodes, requests);
    this.reach = reach;
  }

  keyframe({ seq, state }: Events["keyframe"]) {
    Object.assign(this, new State());
    const nodes = state.nodes.map(({ tokens = [], texts = [], blocks = [], ...node }) => ({
      ...node,
      blocks,
      content: { tokens, texts },
    }));
    this.#become(
      { ...state, seq },
      nodes,
      state.requests.map((entry) => this.#withContent(entry)),
    );
  }

  /** Takes over a state whose nodes and requests have their contents. */
  #become(
    state: Omit<Events["keyframe"]["state"], "nodes" | "requests">,
    nodes: FreshNode[],
    requests: Omit<RequestState, "place">[],
  ) {
    this.#reset(state.settings as Settings, state.free);
    this.classes = state.classes;
    this.source = state.source ?? {};
    this.seq = state.seq;
    this.step = state.step;
    this.tick = state.tick;
    this.paused = state.paused;
    this.running = state.running;
    for (const [step, rows] of state.in_flight) this.#setPlan(step, rows.map(withDrafts));
    if (state.plan.length) this.#setPlan(this.step, state.plan.map(withDrafts));
    if (this.windowPages) this.windowPages = new Set(state.window_pages);
    const texts = state.tier_texts;
    const tier = (name: keyof Tiers) =>
      new Map(state.tiers?.[name].map((slot, i) => [slot, texts?.[name][i] ?? ""]));
    if (state.tiers) this.tiers = { host: tier("host"), disk: tier("disk") };
    this.adapters = state.adapters ?? [];
    this.queue = state.queue;
    for (const node of nodes) {
      if (node.id === ROOT) continue;
      this.#addNode({ ...node, lock_ref: 0 });
      this.#cache([...node.blocks, ...(node.copies ?? [])], 1);
    }
    // A node may have a smaller number than the one above it.
    for (const node of this.nodes.list()) node.below = 0;
    for (const { parent } of this.nodes.list()) this.#countBelow(parent, 1);
    this.reported = state.reported ?? null;
    this.expertLoads = unpacked(state.expert_loads ?? []);
    this.waitingCount = this.reported?.waiting ?? 0;
    const place = new Map<number, number>(state.waiting.map((id) => [id, ++this.back]));
    for (const entry of requests) {
      this.#addRequestState({ ...entry, place: place.get(entry.id) ?? null });
      this.#incref(heldBlocks(entry));
      this.#countLock(entry.last_node);
    }
    for (let block = 0; block < state.settings.num_blocks; block++)
      if (this.blockWords.get(block)) this.reach = block + 1;
    this.lanes = state.lanes ?? [];
    const preempted = state.waiting.filter((id) => this.request(id).preemptions);
    for (const id of [...state.running, ...preempted]) this.#takeLane(id);
    for (const hold of state.holds) {
      this.#addHold({ label: "", ...hold });
      this.#countLock(hold.last_node);
    }
  }
}

type Tables = Pick<RequestState, "block_table" | "group_tables">;

/** The block tables of a request, one per KV cache group; -1 stands for no block. */
export const tablesOf = ({ block_table, group_tables = [] }: Tables) => [
  block_table,
  ...group_tables,
];

/** The blocks of all of a request's tables. */
export const heldBlocks = (request: Tables) => {
  const blocks = tablesOf(request).flat();
  return request.group_tables?.length ? blocks.filter((block) => block >= 0) : blocks;
};

/** The kind of a block, from its word: see `State.blockWords`. */
function kindOf(word: number) {
  if (word < 2) return "free";
  const holders = (word >> 1) - (word & 1);
  return holders === 0 ? "cached" : holders === 1 ? "unshared" : "shared";
}

/** A row of an event; most are complete and are shared. */
function withDrafts(row: Events["ScheduledRow"]): PlannedRow {
  return row[3] ? (row as PlannedRow) : [row[0], row[1], row[2], []];
}
