/**
 * Everything the panels need for one step: the state after its last event, and the changes within it. Each part is
 * computed when it is first read, so that a board without a tree does not compute one.
 */

import { adapterOf } from "./adapters.ts";
import { decisions, outcomes } from "./decisions.ts";
import { heldBlocks, type State, tablesOf } from "./fold.ts";
import { type Fate, fateOf } from "./happenings.ts";
import { messages, text, whyBlocked } from "./messages.ts";
import type { Model } from "./model.ts";
import type { Status, StepInfo } from "./step_table.ts";
import { type Row, Story } from "./story.ts";
import { tokensPanel } from "./tokens.ts";
import { findPrefix, type TreeNode, treeOf } from "./tree.ts";
import { waitIn } from "./waits.ts";
import { agree } from "./words.ts";

export interface Block {
  id: number;
  kind: "free" | "unshared" | "shared" | "cached"; // cached: idle in the tree
  owners: number[]; // ids, ascending
  refs: number; // as the engine counts: tables, plus 1 if cached
  node: number; // tree node it belongs to, 0 for none
  filled: number; // slots whose KV is computed
  slots: number;
  isCut: boolean; // sliding layers do not have its KV, as it has no window page; or only layers of another group do
  group: number; // of the KV cache, see `source.groups`; 0 in a log without groups
  mark: "new" | "handed" | "evicted" | "source" | "copy" | "hit" | "freed" | null;
  from: number | null; // the request that held it when the step began
  to: number | null; // the request that took it in this step
}

const PHASES = {
  future: "",
  waits: "waits",
  prefill: "prefill",
  decode: "decode",
  catchup: "catches up",
  stalled: "gets nothing",
  preempted: "preempted",
  forked: "forked",
  running: "running",
  finished: "finished",
};

export class Frame {
  #kept: Record<string, unknown> = {};
  model: Model;
  step: number;
  status: Status;
  events: { from: number; to: number };
  before: State;
  state: State;
  story: Story;

  /** @param before the state before the step's first event; not changed */
  constructor(model: Model, info: StepInfo, before: State) {
    this.model = model;
    this.step = info.step;
    this.status = info.status;
    this.events = { from: info.from, to: info.to };
    this.before = before;
    this.state = before.copy();
    this.story = new Story(this.state, model.eventsIn(info.from, info.to));
  }

  #once<T>(name: string, compute: () => T): T {
    return (this.#kept[name] ??= compute()) as T;
  }

  get time() {
    const index = this.step - this.model.firstStep;
    const { start, end } = this.model.measures;
    if (Number.isNaN(end.at(index) - start.at(index))) return null;
    return { start: start.at(index), end: end.at(index) };
  }

  get counts() {
    return this.state.counts;
  }

  get budget() {
    const { rows, counted } = this.story;
    const tokens = rows.reduce((sum, row) => sum + row.count, 0);
    return {
      budget: this.state.settings.token_budget,
      tokens: counted ? counted.prefill_tokens + counted.decodes : tokens,
    };
  }

  /**
   * The seats taken in the step, as scheduled, and those held at its end, when the requests that ended in it have left.
   * Blocks and the queue are counted at the end. A request takes one seat per sample.
   */
  get seats() {
    const { scheduled, seats } = this.story;
    return {
      taken: scheduled ? seats : this.state.seats,
      held: this.state.seats,
      all: this.state.settings.max_batch_size,
    };
  }

  get running() {
    return this.state.running;
  }

  /** Ids of the requests that wait at the end of the step, front to back. */
  get waiting(): number[] {
    return this.#once("waiting", () => this.state.waiting());
  }

  /** How many requests wait; a log may know no more than that. */
  get waitingCount() {
    return this.state.waitingCount;
  }

  /** Why a request waited after scheduling. */
  waitOf(id: number) {
    const { scheduled } = this.story;
    if (!scheduled || !this.asked.has(id)) return { reason: null, head: null };
    return waitIn(
      scheduled.blocked,
      this.#once("put off", () => new Map(scheduled.skipped)),
      id,
    );
  }

  /** Ids of the requests that waited after scheduling. */
  get asked(): Set<number> {
    return this.#once("asked", () => new Set(this.story.waiting));
  }

  /** The words for why the head of the queue was not admitted. */
  get obstacle() {
    return this.story.blocked ? whyBlocked(this.story.blocked, this.state.settings) : "";
  }

  /** The words for the reason of some requests: the head's obstacle, or why they were passed over. */
  reasonFor(reason: string, ids: number[]) {
    const who = agree(ids, "it", "them");
    if (reason === "adapter_slot") {
      const [name, ...others] = new Set(ids.map((id) => adapterOf(this.model.requestSpan(id))));
      const adapter = `${agree(ids, "its", "their")} adapter ${name} is`;
      const whose = others.length ? "their adapters are" : adapter;
      return text(messages.reasons.adapter_slot.clause, { whose });
    }
    if (reason === this.story.blocked?.reason && reason !== "policy") return this.obstacle;
    return text(messages.reasons.policy.clause, { who });
  }

  /** The state of a request at the end of the step. */
  phase(id: number) {
    const kind = this.#phase(id);
    return { kind, words: PHASES[kind] };
  }

  /** The kind of each request's row. */
  get #kinds(): Map<number, Row["kind"]> {
    return this.#once(
      "kinds",
      () => new Map(this.story.rows.map((row) => [row.request, row.kind])),
    );
  }

  #phase(id: number): keyof typeof PHASES {
    const span = this.model.request(id);
    const request = this.state.requests.get(id);
    if (!request) return span?.finished && span.finished.step <= this.step ? "finished" : "future";
    if (request.place !== null) return request.preemptions ? "preempted" : "waits";
    const kind = this.#kinds.get(id);
    if (kind) return kind;
    if (this.story.stalled.some((one) => one.request === id)) return "stalled";
    return this.story.forks.some((one) => one.request === id) ? "forked" : "running";
  }

  get decisions() {
    return this.#once("decisions", () => decisions(this));
  }

  get outcomes() {
    return this.#once("outcomes", () => outcomes(this));
  }

  // Blocks

  get blocks(): Block[] {
    return this.#once("blocks", () => this.#describeBlocks());
  }

  /** What a cut corner means, with how many blocks have one, and how many window pages are in use. */
  get cutWords() {
    const { windowPages, settings, source } = this.state;
    if (!windowPages && !source.groups) return [];
    const cut = this.blocks.filter(({ isCut }) => isCut).length;
    if (!windowPages) return [`${cut} not of ${source.groups?.[0]}`];
    const used = `${windowPages.size} of ${settings.num_window_pages} window pages`;
    return [`${cut} without window page`, used];
  }

  /** The blocks that something happened to; most of thousands have no mark. */
  get markedBlocks() {
    return this.#once("marked blocks", () => this.blocks.filter(({ mark }) => mark));
  }

  #describeBlocks() {
    const { state, before, story } = this;
    const slots = state.blockSize;
    const { owners, filled, groups } = holdersOf(state);
    const firstBefore = firstHoldersOf(before);
    const nodes = new Int32Array(owners.length);
    for (const node of state.nodes.list()) {
      for (const block of node.blocks) nodes[block] = node.id;
      for (const block of node.copies) nodes[block] = node.id;
    }
    const takers = new Int32Array(owners.length).fill(NO_REQUEST);
    for (const { request, block } of story.taken) takers[block] = request;
    const marks = new Uint8Array(owners.length);
    const note = (blocks: number[], what: number) => {
      for (const block of blocks) marks[block] |= what;
    };
    for (const { blocks } of story.admissions) note(blocks, HIT);
    for (const { blocks } of story.evictions) note(blocks, EVICTED);
    for (const { source, block } of story.copies) {
      note([source], SOURCE);
      note([block], COPY);
    }
    const described: Block[] = [];
    for (let id = 0; id < owners.length; id++) {
      const held = owners[id] ?? NONE;
      const node = nodes[id];
      const from = firstBefore[id] === NO_REQUEST ? null : firstBefore[id];
      const to = takers[id] === NO_REQUEST ? null : takers[id];
      const kind = held.length > 1 ? "shared" : held.length ? "unshared" : node ? "cached" : "free";
      let mark: Block["mark"] = null;
      if (marks[id] & COPY && held.length) mark = "copy";
      else if (marks[id] & SOURCE) mark = "source";
      else if (marks[id] & HIT && held.length) mark = "hit";
      else if (kind === "free") mark = before.refs(id) ? "freed" : null;
      else if (to !== null)
        mark = from !== null ? "handed" : marks[id] & EVICTED ? "evicted" : "new";
      described.push({
        id,
        kind,
        owners: held,
        refs: state.refs(id),
        node,
        filled: node ? slots : filled[id],
        slots,
        isCut: (kind !== "free" && state.windowPages?.has(id) === false) || groups[id] > 0,
        group: groups[id],
        mark,
        from,
        to,
      });
    }
    return described;
  }

  /** The pieces of text in a block, one per filled slot. */
  blockTexts(id: number): string[] {
    const { node, owners, filled } = this.blocks[id];
    const size = this.state.blockSize;
    if (node) {
      const { content, from, blocks } = this.state.node(node);
      const at = from + Math.max(0, blocks.indexOf(id)) * size; // a copy is not among the blocks
      return content.texts.slice(at, at + size);
    }
    if (!owners.length) return [];
    const holder = owners
      .map((owner) => this.state.request(owner))
      .reduce((most, other) =>
        other.num_computed_tokens > most.num_computed_tokens ? other : most,
      );
    const table = tablesOf(holder).find((one) => one.includes(id)) ?? [];
    const at = table.indexOf(id) * size;
    return holder.content.texts.slice(at, at + filled);
  }

  /** A request's block table; if it lost the table in this step, the fate of each block. */
  table(id: number): { blocks: number[]; lost: boolean; fates: Fate[] } {
    const table = this.state.requests.get(id)?.block_table ?? [];
    if (table.length) return { blocks: table, lost: false, fates: [] };
    const { preemptions, endings } = this.story;
    const loss = [...preemptions, ...endings].findLast(
      (one) => one.request === id && one.table.length,
    );
    if (!loss) return { blocks: [], lost: false, fates: [] };
    const fates = loss.table.map((block) => this.fate(block, loss.seq));
    return { blocks: loss.table, lost: true, fates };
  }

  /** The fate of a block that a request released at `seq`. */
  fate(block: number, seq: number): Fate {
    return fateOf(block, seq, this.story.taken, this.story.preemptions, this.state);
  }

  // Tree and tokens

  /** Nodes, parents before children, without the root. */
  get tree(): TreeNode[] {
    return this.#once("tree", () => treeOf(this.state));
  }

  /** The blocks of running requests that are not in the tree. */
  get tails() {
    return this.#once("tails", () =>
      this.running.map((id) => {
        const {
          block_table: table,
          last_node: lock,
          num_computed_tokens: computed,
        } = this.state.request(id);
        const depth = this.state.depth(lock);
        const tokens = computed - depth * this.state.blockSize;
        return { request: id, node: lock, blocks: table.slice(depth), tokens };
      }),
    );
  }

  /** A request's path in the tree: the one it has locked or, while it waits, the one it would hit. */
  path(id: number): { nodes: number[]; blocks: number[]; tokens: number; holds: boolean } {
    const request = this.state.requests.get(id);
    if (!request) return { nodes: [], blocks: [], tokens: 0, holds: false };
    if (request.place !== null) {
      const { nodes, blocks } = findPrefix(this.tree, this.state, request);
      return { nodes, blocks, tokens: blocks.length * this.state.blockSize, holds: false };
    }
    const path = this.state.path(request.last_node).reverse();
    const blocks = request.block_table.slice(0, this.state.depth(request.last_node));
    const tokens = blocks.length * this.state.blockSize;
    return { nodes: path.map((node) => node.id), blocks, tokens, holds: true };
  }

  /** The tokens panel of a request. */
  tokensOf(id: number) {
    return tokensPanel(this, id);
  }
}

const NONE: number[] = [];
const NO_REQUEST = -1;
// Events of a block within the step, as bits.
const HIT = 1;
const EVICTED = 2;
const SOURCE = 4;
const COPY = 8;

/** The owners of each block, ids ascending, the number of its computed slots, and its KV cache group. */
function holdersOf(state: State) {
  const owners: number[][] = new Array(state.settings.num_blocks);
  const filled = new Int32Array(state.settings.num_blocks);
  const groups = new Uint8Array(state.settings.num_blocks);
  const { blockSize } = state;
  for (const id of [...state.running].sort((a, b) => a - b)) {
    const { num_computed_tokens: computed } = state.request(id);
    const alone = [id]; // one list for all blocks without other owners
    for (const [group, table] of tablesOf(state.request(id)).entries())
      for (let index = 0; index < table.length; index++) {
        const block = table[index];
        if (block < 0) continue;
        owners[block] = owners[block] ? [...owners[block], id] : alone;
        filled[block] = Math.max(filled[block], Math.min(blockSize, computed - index * blockSize));
        groups[block] = group;
      }
  }
  return { owners, filled, groups };
}

/** The owner of each block with the lowest id, or NO_REQUEST. */
function firstHoldersOf(state: State) {
  const first = new Int32Array(state.settings.num_blocks).fill(NO_REQUEST);
  for (const id of state.running) {
    for (const block of heldBlocks(state.request(id))) {
      if (first[block] === NO_REQUEST || id < first[block]) first[block] = id;
    }
  }
  return first;
}
