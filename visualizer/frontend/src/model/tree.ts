/** The prefix tree of one step: the requests that lock each node, and the prefix that a waiting request would hit. */

import type { NodeState, RequestState, State } from "./fold.ts";
import type { Model } from "./model.ts";
import { count } from "./words.ts";

/** A block that is known by its hash alone. Without media it is not in the cache, as far as the log knows. */
export type Mark = { hash: string; media: string[] };

const ROOT = 0;
const MOST_NAMES = 100; // no line has room for more

export class TreeNode {
  id: number;
  parent: number;
  depth: number;
  blocks: number[];
  blockSize: number;
  lock: number;
  /** Step of the last use; null: before the log begins. */
  since: number | null;
  children: number[] = [];
  /** Requests locked here or below. */
  owners: number[] = [];
  /** Labels of holds locked here or below. */
  holders: string[] = [];
  /** The blocks of a foreign cache of which only hashes are known: see `Mark`. */
  marks: Mark[];
  /** The nodes of the state that it is made of, from the top. */
  parts: NodeState[];
  state: State;

  /** @param depth blocks above it */
  constructor(state: State, node: NodeState, depth: number) {
    this.id = node.id;
    this.parent = node.parent;
    this.depth = depth;
    this.blocks = node.blocks;
    this.blockSize = state.blockSize;
    this.lock = node.lock_ref;
    this.since = node.used;
    this.marks = node.hash ? [{ hash: node.hash, media: node.media ?? [] }] : [];
    this.parts = [node];
    this.state = state;
  }

  /** The names of the requests and the buffers that use it. */
  usersIn(model: Model) {
    const buffers = this.holders.map((label) => (label ? `a buffer of ${label}` : "a buffer"));
    return [...this.owners.map((id) => model.requestSpan(id).name), ...buffers];
  }

  get idle() {
    return this.lock === 0;
  }

  /**
   * Puts the blocks of nodes above it before its own.
   *
   * @param parts from the top, itself the last
   */
  join(parts: TreeNode[]) {
    const { parent, depth } = parts[0];
    Object.assign(this, { parent, depth });
    this.blocks = parts.flatMap(({ blocks }) => blocks);
    this.marks = parts.flatMap(({ marks }) => marks);
    this.parts = parts.flatMap((one) => one.parts);
  }

  get tokens(): number[] {
    return this.parts.flatMap((part) => this.state.tokensOf(part));
  }

  /** One piece per token on the edge. */
  get texts(): string[] {
    return this.parts.flatMap((part) => this.state.textsOf(part));
  }

  get text() {
    return this.texts.join("");
  }

  /** What is written above the chain: its text or, without any, the first four digits of each hash. */
  get title() {
    if (!this.marks.length) return this.text;
    const shown = this.marks.slice(0, MOST_NAMES);
    const names = shown.map(({ hash }) => hash.slice(0, 4)).join(" ");
    const tokens = count(this.blocks.length * this.blockSize, "token");
    const more = this.blocks.length ? tokens : this.absence;
    return `${names}  ${more}`;
  }

  /** Where its blocks are, with the number of blocks: "GPU" or "GPU 3, CPU 1"; "" for our own engine. */
  get places() {
    const counts: Map<string, number> = new Map();
    for (const { media } of this.marks)
      for (const place of new Set(media)) counts.set(place, (counts.get(place) ?? 0) + 1);
    const everywhere = [...counts.values()].every((blocks) => blocks === this.marks.length);
    return [...counts]
      .map(([place, blocks]) => (everywhere ? place : `${place} ${blocks}`))
      .join(everywhere ? " and " : ", ");
  }

  /** Why a node without a block is there. */
  get absence() {
    return this.since === null ? "stored before this log" : "evicted";
  }
}

/**
 * With the hash cache, each block is a node of the state. A chain of them is one node here, with the id of its last
 * block, as long as no request's path ends inside it.
 *
 * @returns parents before children
 */
export function treeOf(state: State): TreeNode[] {
  const children: Map<number, NodeState[]> = new Map();
  for (const node of state.nodes.list()) {
    if (node.id === ROOT) continue;
    const siblings = children.get(node.parent) ?? [];
    children.set(node.parent, siblings);
    siblings.push(node);
  }
  const tree: Map<number, TreeNode> = new Map();
  const grow = (parent: number, depth: number) => {
    const below = (children.get(parent) ?? []).map((node) => new TreeNode(state, node, depth));
    for (const node of below) {
      tree.set(node.id, node);
      tree.get(parent)?.children.push(node.id);
    }
    return below;
  };
  const queue = grow(ROOT, 0);
  for (const node of queue) queue.push(...grow(node.id, node.depth + node.blocks.length));
  for (const id of state.running) {
    for (const { id: above } of state.path(state.request(id).last_node))
      tree.get(above)?.owners.push(id);
  }
  for (const { last_node: lock, label } of state.holds.values()) {
    for (const { id: above } of state.path(lock)) tree.get(above)?.holders.push(label);
  }
  const nodes = [...tree.values()];
  return state.isHashed ? chainsOf(state, nodes) : nodes;
}

/** @param nodes a block each */
function chainsOf(state: State, nodes: TreeNode[]) {
  const tree = new Map(nodes.map((node) => [node.id, node]));
  const ends = new Set([...state.holds.values()].map(({ last_node: lock }) => lock));
  for (const id of state.running) ends.add(state.request(id).last_node);
  /** The nodes whose blocks the one below takes, by that one's id. */
  const taken: Map<number, TreeNode> = new Map();
  for (const node of nodes) {
    node.lock = node.owners.length + node.holders.length;
    const above = tree.get(node.parent);
    if (above?.children.length !== 1 || ends.has(above.id)) continue;
    if (above.blocks.length && node.blocks.length) taken.set(node.id, above);
  }
  const continued = new Set(taken.values());
  const chains = nodes.filter((node) => !continued.has(node));
  for (const node of chains) {
    const parts = [node];
    for (let above = taken.get(node.id); above; above = taken.get(above.id)) parts.push(above);
    if (parts.length > 1) node.join(parts.reverse());
  }
  for (const node of chains) node.children = [];
  for (const node of chains) tree.get(node.parent)?.children.push(node.id);
  return chains;
}

/**
 * The cached prefix of a waiting request: whole blocks, and never all of its tokens, because at least one token
 * has to be computed for its logits. Only a prefix of the same adapter and salt can be found.
 */
export function findPrefix(
  tree: TreeNode[],
  state: State,
  { content, length, extra_key }: RequestState,
): { nodes: number[]; blocks: number[] } {
  const size = state.blockSize;
  const limit = state.settings.prefix_cache === "off" ? 0 : Math.floor((length - 1) / size);
  const nodes = [];
  const blocks: number[] = [];
  for (let parent = ROOT; blocks.length < limit; ) {
    const at = blocks.length * size;
    const agrees = (tokens: number[], block: number) => {
      for (let slot = block * size; slot < (block + 1) * size; slot++) {
        // An unknown token is -1 and equals no other.
        if (tokens[slot] < 0 || tokens[slot] !== content.tokens[at + slot]) return false;
      }
      return true;
    };
    const isOwn = ({ parts: [top] }: TreeNode) => `${top.extra_key ?? []}` === `${extra_key}`;
    const next = tree.find(
      (node) =>
        node.parent === parent && (parent !== ROOT || isOwn(node)) && agrees(node.tokens, 0),
    );
    if (!next) break;
    const { tokens } = next;
    const most = Math.min(next.blocks.length, limit - blocks.length);
    let depth = 1;
    while (depth < most && agrees(tokens, depth)) depth++;
    nodes.push({ id: next.id, from: blocks.length });
    blocks.push(...next.blocks.slice(0, depth));
    if (depth < next.blocks.length) break;
    parent = next.id;
  }
  const usable = state.usablePrefix(blocks.map((block) => copiesOf(state, block)));
  return {
    nodes: nodes.filter(({ from }) => from < usable.length).map(({ id }) => id),
    blocks: usable,
  };
}

/** A block and its duplicates; without sliding layers they do not matter. */
function copiesOf(state: State, block: number) {
  if (!state.windowPages || !state.isHashed) return [block];
  const node = state.nodes.list().find(({ blocks }) => blocks[0] === block);
  return [block, ...(node?.copies ?? [])];
}
