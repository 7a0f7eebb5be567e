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
    this.idle = node.lock === 0;
    /** Step of the last use; null: before the log begins. */
    this.since = node.used;
    /** @type {number[]} */
    this.children = [];
    /** Requests locked here or below. @type {number[]} */
    this.owners = [];
    /** Labels of holds locked here or below. @type {string[]} */
    this.holders = [];
    this.read = { tokens: () => state.tokensOf(node), texts: () => state.textsOf(node) };
  }

  /** One piece per token on the edge. @returns {string[]} */
  get texts() {
    return this.read.texts();
  }

  get text() {
    return this.texts.join("");
  }
}

/** @param {import("./fold.js").State} state @returns {TreeNode[]} parents before children */
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
  return [...tree.values()];
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
  const limit = state.settings.prefix_cache === false ? 0 : Math.floor((length - 1) / size);
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
