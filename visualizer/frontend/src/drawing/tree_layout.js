/**
 * The positions of the prefix tree's nodes. Pure functions.
 *
 * Rows are leaves, columns are levels. A request that holds tokens beyond its node without a leaf of
 * its own gets a row too. If there are more rows than `mostRows`, subtrees are folded: those on the
 * selected request's path are folded last, before them those in use, then those used most recently.
 *
 * @typedef {{nodes: number, blocks: number}} Weight
 * @typedef {object} Place
 * @property {number} row
 * @property {number} level
 * @property {NodeItem | null} parentItem
 * @property {TreeItem[]} children
 * @typedef {Place & {kind: "node", node: TreeNode, folded: Weight | null}} NodeItem  folded: what it hides
 * @typedef {Place & {kind: "request", request: number, at: number}} RequestItem  at: the node where its path ends
 * @typedef {Place & {kind: "rest", subtrees: number, folded: Weight}} RestItem
 * @typedef {NodeItem | RequestItem | RestItem} TreeItem
 *
 * @typedef {{items: TreeItem[], rows: number, levels: number}} TreeLayout
 * @typedef {object} LayoutOptions
 * @property {Set<number>} path          the selected request's nodes
 * @property {Map<number, number[]>} endsAt  requests whose path ends at a node, by node
 * @property {number} mostRows
 * @property {boolean} [outline]         every node has a row of its own, as on a phone
 * @typedef {Map<number, {shown: number[], rest: number[]}>} Open  by node: the children that are shown, and the others
 */

/** @import { TreeNode } from "../model/tree.js" */

const TOP_SHARE = 0.6;

/**
 * The layout of `nodes`, parents first.
 *
 * @param {TreeNode[]} nodes @param {LayoutOptions} options
 * @returns {TreeLayout}
 */
export function layoutTree(nodes, { path, endsAt, mostRows, outline = false }) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  /** @param {TreeNode} node */
  const rank = (node) => (path.has(node.id) ? 2e9 : node.idle ? 0 : 1e9) + Number(node.since);
  /** @param {number} id */
  const nodeOf = (id) => /** @type {TreeNode} */ (byId.get(id));
  const open = chooseOpen(nodes, nodeOf, rank, endsAt, mostRows);
  /** @type {TreeItem[]} */
  const items = [];
  let row = 0;
  let levels = 0;

  /** @param {number} level @param {NodeItem | null} parentItem @returns {Place} */
  const place = (level, parentItem) => {
    levels = Math.max(levels, level + 1);
    return { level, parentItem, row, children: [] };
  };
  /** @template {TreeItem} T @param {T} item */
  const add = (item) => {
    items.push(item);
    item.parentItem?.children.push(item);
    return item;
  };
  /** @param {number} id @param {number} level @param {NodeItem | null} parentItem */
  const visit = (id, level, parentItem) => {
    const node = nodeOf(id);
    /** @type {NodeItem} */
    const item = { kind: "node", node, folded: null, ...place(level, parentItem) };
    add(item);
    if (!node.children.length) row += 1;
    else if (open.has(id)) {
      if (outline) row += 1;
      descend(id, level + 1, item);
    } else {
      item.folded = weigh(node, nodeOf);
      row += 1;
    }
  };
  /** @param {number} id @param {number} level @param {NodeItem | null} item */
  const descend = (id, level, item) => {
    const { shown, rest } = /** @type {{shown: number[], rest: number[]}} */ (open.get(id));
    for (const child of shown) visit(child, level, item);
    for (const request of endsAt.get(id) ?? []) {
      add({ kind: "request", request, at: id, ...place(level, item) });
      row += 1;
    }
    if (rest.length) {
      const folded = total(rest.map((child) => weigh(nodeOf(child), nodeOf)));
      add({ kind: "rest", subtrees: rest.length, folded, ...place(level, item) });
      row += 1;
    }
  };
  descend(0, 0, null);
  return { items, rows: row, levels };
}

/**
 * The open nodes, each with the children that are shown and those that are summed up as a rest.
 *
 * @param {TreeNode[]} nodes @param {(id: number) => TreeNode} nodeOf @param {(node: TreeNode) => number} rank
 * @param {Map<number, number[]>} endsAt @param {number} mostRows
 * @returns {Open}
 */
function chooseOpen(nodes, nodeOf, rank, endsAt, mostRows) {
  /** @type {Open} */
  const open = new Map();
  /** @param {number} id */
  const childrenOf = (id) =>
    id === 0
      ? nodes.filter(({ parent }) => parent === 0).map((node) => node.id)
      : nodeOf(id).children;
  let rows = 1;
  /** @param {number} id */
  const openUp = (id) => {
    const children = [...childrenOf(id)].sort((a, b) => a - b);
    const requests = endsAt.get(id)?.length ?? 0;
    // The top level leaves some rows for deeper levels.
    const left = id === 0 ? Math.ceil(mostRows * TOP_SHARE) : mostRows - rows + 1;
    const room = Math.max(2, left - requests);
    let shown = children;
    /** @type {number[]} */
    let rest = [];
    if (children.length > room) {
      const best = new Set(
        [...children].sort((a, b) => rank(nodeOf(b)) - rank(nodeOf(a))).slice(0, room - 1),
      );
      shown = children.filter((child) => best.has(child));
      rest = children.filter((child) => !best.has(child));
    }
    open.set(id, { shown, rest });
    rows += shown.length + requests + (rest.length ? 1 : 0) - 1;
    return shown;
  };
  let candidates = openUp(0);
  for (;;) {
    candidates = candidates.filter((id) => nodeOf(id).children.length);
    candidates.sort((a, b) => rank(nodeOf(b)) - rank(nodeOf(a)));
    const next = candidates.shift();
    if (next === undefined) return open;
    const more = nodeOf(next).children.length + (endsAt.get(next)?.length ?? 0) - 1;
    const mustSee = rank(nodeOf(next)) >= 2e9;
    if (rows + Math.min(more, 2) > mostRows && !mustSee) continue;
    candidates.push(...openUp(next));
  }
}

/** @param {TreeNode} node @param {(id: number) => TreeNode} nodeOf @returns {Weight} */
function weigh(node, nodeOf) {
  const below = node.children.map((child) => weigh(nodeOf(child), nodeOf));
  return total([...below, { nodes: 1, blocks: node.blocks.length }]);
}

/** @param {Weight[]} parts @returns {Weight} */
function total(parts) {
  return {
    nodes: parts.reduce((sum, { nodes }) => sum + nodes, 0),
    blocks: parts.reduce((sum, { blocks }) => sum + blocks, 0),
  };
}
