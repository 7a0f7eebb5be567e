/**
 * The positions of the prefix tree's nodes. Pure functions.
 *
 * Rows are leaves, columns are levels. A request that holds tokens beyond its node without a leaf of
 * its own gets a row too. If there are more rows than `mostRows`, subtrees are folded: those on the
 * selected request's path are folded last, before them those in use, then those used most recently.
 */

import type { TreeNode } from "../model/tree.ts";

type Weight = { nodes: number; blocks: number };

interface Place {
  row: number;
  level: number;
  parentItem: NodeItem | null;
  children: TreeItem[];
}

/** folded: what it hides */
type NodeItem = Place & { kind: "node"; node: TreeNode; folded: Weight | null };

type RequestItem = Place & { kind: "request"; request: number };

type RestItem = Place & { kind: "rest"; subtrees: number; folded: Weight };

export type TreeItem = NodeItem | RequestItem | RestItem;

export type TreeLayout = { items: TreeItem[]; rows: number; levels: number };

interface LayoutOptions {
  path: Set<number>; // the selected request's nodes
  endsAt: Map<number, number[]>; // requests whose path ends at a node, by node
  mostRows: number;
  outline?: boolean; // every node has a row of its own, as on a phone
}

/** by node: the children that are shown, and the others */
type Open = Map<number, { shown: number[]; rest: number[] }>;

const TOP_SHARE = 0.6;

/** The layout of `nodes`, parents first. */
export function layoutTree(
  nodes: TreeNode[],
  { path, endsAt, mostRows, outline = false }: LayoutOptions,
): TreeLayout {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const rank = (node: TreeNode) =>
    (path.has(node.id) ? 2e9 : node.idle ? 0 : 1e9) + Number(node.since);
  const nodeOf = (id: number) => byId.get(id) as TreeNode;
  const open = chooseOpen(nodes, nodeOf, rank, endsAt, mostRows);
  const items: TreeItem[] = [];
  let row = 0;
  let levels = 0;

  const place = (level: number, parentItem: NodeItem | null): Place => {
    levels = Math.max(levels, level + 1);
    return { level, parentItem, row, children: [] };
  };
  const add = <T extends TreeItem>(item: T) => {
    items.push(item);
    item.parentItem?.children.push(item);
    return item;
  };
  const visit = (id: number, level: number, parentItem: NodeItem | null) => {
    const node = nodeOf(id);
    const item: NodeItem = { kind: "node", node, folded: null, ...place(level, parentItem) };
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
  const descend = (id: number, level: number, item: NodeItem | null) => {
    const { shown, rest } = open.get(id) as { shown: number[]; rest: number[] };
    for (const child of shown) visit(child, level, item);
    for (const request of endsAt.get(id) ?? []) {
      add({ kind: "request", request, ...place(level, item) });
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

/** The open nodes, each with the children that are shown and those that are summed up as a rest. */
function chooseOpen(
  nodes: TreeNode[],
  nodeOf: (id: number) => TreeNode,
  rank: (node: TreeNode) => number,
  endsAt: Map<number, number[]>,
  mostRows: number,
): Open {
  const open: Open = new Map();
  const childrenOf = (id: number) =>
    id === 0
      ? nodes.filter(({ parent }) => parent === 0).map((node) => node.id)
      : nodeOf(id).children;
  let rows = 1;
  const openUp = (id: number) => {
    const children = [...childrenOf(id)].sort((a, b) => a - b);
    const requests = endsAt.get(id)?.length ?? 0;
    // The top level leaves some rows for deeper levels.
    const left = id === 0 ? Math.ceil(mostRows * TOP_SHARE) : mostRows - rows + 1;
    const room = Math.max(2, left - requests);
    let shown = children;
    let rest: number[] = [];
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

function weigh(node: TreeNode, nodeOf: (id: number) => TreeNode): Weight {
  const below = node.children.map((child) => weigh(nodeOf(child), nodeOf));
  return total([...below, { nodes: 1, blocks: node.blocks.length }]);
}

function total(parts: Weight[]): Weight {
  return {
    nodes: parts.reduce((sum, { nodes }) => sum + nodes, 0),
    blocks: parts.reduce((sum, { blocks }) => sum + blocks, 0),
  };
}
