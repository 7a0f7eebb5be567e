/** The prefix tree of one step: the requests that lock each node, and the prefix that a waiting request would hit. */

/**
 * A block that is known by its hash alone. Without media it is not in the cache, as far as the log knows.
 *
 * @typedef {{hash: string, media: string[]}} Mark
 */

import { count } from "./words.js";

const ROOT = 0;
const MOST_NAMES = 100; // no line has room for more

export class TreeNode {
  /**
   * @param {import("./fold.js").State} state
   * @param {import("./fold.js").NodeState} node
   * @param {number} depth  blocks above it
   */
  constructor(state, node, depth) {
    this.id = node.id;
    this.parent = node.parent;
    this.depth = depth;
    this.blocks = node.blocks;
    this.blockSize = state.blockSize;
    this.lock = node.lock;
    /** Step of the last use; null: before the log begins. */
    this.since = node.used;
    /** @type {number[]} */
    this.children = [];
    /** Requests locked here or below. @type {number[]} */
    this.owners = [];
    /** Labels of holds locked here or below. @type {string[]} */
    this.holders = [];
    /** The blocks of a foreign cache of which only hashes are known: see `Mark`. @type {Mark[]} */
    this.marks = node.hash ? [{ hash: node.hash, media: node.media ?? [] }] : [];
    this.read = { tokens: () => state.tokensOf(node), texts: () => state.textsOf(node) };
  }

  get idle() {
    return this.lock === 0;
  }

  /** Puts the blocks of nodes above it before its own. @param {TreeNode[]} parts  from the top, itself the last */
  join(parts) {
    const { parent, depth } = parts[0];
    const reads = parts.map(({ read }) => read);
    Object.assign(this, { parent, depth });
    this.blocks = parts.flatMap(({ blocks }) => blocks);
    this.marks = parts.flatMap(({ marks }) => marks);
    this.read = {
      tokens: () => reads.flatMap(({ tokens }) => tokens()),
      texts: () => reads.flatMap(({ texts }) => texts()),
    };
  }

  /** One piece per token on the edge. @returns {string[]} */
  get texts() {
    return this.read.texts();
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
    /** @type {Map<string, number>} */
    const counts = new Map();
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
 * @param {import("./fold.js").State} state
 * @returns {TreeNode[]} parents before children
 */
export function treeOf(state) {
  /** @type {Map<number, import("./fold.js").NodeState[]>} */
  const children = new Map();
  for (const node of state.nodes.list()) {
    if (node.id === ROOT) continue;
    const siblings = children.get(node.parent) ?? [];
    children.set(node.parent, siblings);
    siblings.push(node);
  }
  /** @type {Map<number, TreeNode>} */
  const tree = new Map();
  const grow = (/** @type {number} */ parent, /** @type {number} */ depth) => {
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
    for (const { id: above } of state.path(state.request(id).lock))
      tree.get(above)?.owners.push(id);
  }
  for (const { lock, label } of state.holds.values()) {
    for (const { id: above } of state.path(lock)) tree.get(above)?.holders.push(label);
  }
  const nodes = [...tree.values()];
  return state.isHashed ? chainsOf(state, nodes) : nodes;
}

/** @param {import("./fold.js").State} state @param {TreeNode[]} nodes  a block each */
function chainsOf(state, nodes) {
  const tree = new Map(nodes.map((node) => [node.id, node]));
  const ends = new Set([...state.holds.values()].map(({ lock }) => lock));
  for (const id of state.running) ends.add(state.request(id).lock);
  /** The nodes whose blocks the one below takes, by that one's id. @type {Map<number, TreeNode>} */
  const taken = new Map();
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
 * has to be computed for its logits.
 *
 * @param {TreeNode[]} tree
 * @param {import("./fold.js").State} state
 * @param {import("./fold.js").RequestState} request
 * @returns {{nodes: number[], blocks: number[]}}
 */
export function findPrefix(tree, state, { content, length }) {
  const size = state.blockSize;
  const limit = [false, "off"].includes(state.settings.prefix_cache)
    ? 0
    : Math.floor((length - 1) / size);
  const nodes = [];
  /** @type {number[]} */
  const blocks = [];
  for (let parent = ROOT; blocks.length < limit; ) {
    const at = blocks.length * size;
    const agrees = (/** @type {number[]} */ tokens, /** @type {number} */ block) => {
      for (let slot = block * size; slot < (block + 1) * size; slot++) {
        // An unknown token is -1 and equals no other.
        if (tokens[slot] < 0 || tokens[slot] !== content.tokens[at + slot]) return false;
      }
      return true;
    };
    const next = tree.find((node) => node.parent === parent && agrees(node.read.tokens(), 0));
    if (!next) break;
    const tokens = next.read.tokens();
    let depth = 1;
    while (depth < Math.min(next.blocks.length, limit - blocks.length) && agrees(tokens, depth))
      depth++;
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

/** A block and its duplicates; without sliding layers they do not matter. @param {import("./fold.js").State} state
 * @param {number} block */
function copiesOf(state, block) {
  if (!state.windowPages || !state.isHashed) return [block];
  const node = state.nodes.list().find(({ blocks }) => blocks[0] === block);
  return [block, ...(node?.copies ?? [])];
}
