/** The prefix tree of one step: the requests that lock each node, and the prefix that a waiting request would hit. */

const ROOT = 0;

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
    this.lock = node.lock;
    /** Step of the last use; null: before the log begins. */
    this.since = node.used;
    /** @type {number[]} */
    this.children = [];
    /** Requests locked here or below. @type {number[]} */
    this.owners = [];
    /** Labels of holds locked here or below. @type {string[]} */
    this.holders = [];
    /** Whether another node has taken its blocks. */
    this.continued = false;
    this.read = { tokens: () => state.tokensOf(node), texts: () => state.textsOf(node) };
  }

  get idle() {
    return this.lock === 0;
  }

  /** Puts the blocks of the node above before its own. @param {TreeNode} above */
  lengthen(above) {
    const { read } = this;
    this.parent = above.parent;
    this.depth = above.depth;
    this.blocks = [...above.blocks, ...this.blocks];
    this.read = {
      tokens: () => [...above.read.tokens(), ...read.tokens()],
      texts: () => [...above.read.texts(), ...read.texts()],
    };
    above.continued = true;
  }

  /** One piece per token on the edge. @returns {string[]} */
  get texts() {
    return this.read.texts();
  }

  get text() {
    return this.texts.join("");
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
  /** @type {TreeNode[]} */
  const chains = [];
  for (const node of nodes) {
    node.lock = node.owners.length + node.holders.length;
    const above = tree.get(node.parent);
    if (above?.children.length === 1 && !ends.has(above.id)) {
      node.lengthen(above);
    }
  }
  for (const node of nodes) if (!node.continued) chains.push(node);
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
        if (tokens[slot] !== content.tokens[at + slot]) return false;
      }
      return true;
    };
    const next = tree.find((node) => node.parent === parent && agrees(node.read.tokens(), 0));
    if (!next) break;
    const tokens = next.read.tokens();
    let depth = 1;
    while (depth < Math.min(next.blocks.length, limit - blocks.length) && agrees(tokens, depth))
      depth++;
    nodes.push(next.id);
    blocks.push(...next.blocks.slice(0, depth));
    if (depth < next.blocks.length) break;
    parent = next.id;
  }
  return { nodes, blocks };
}
