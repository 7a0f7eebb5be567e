/**
 * The positions of the prefix tree's nodes. Pure functions.
 *
 * Rows are leaves, columns are levels. A request that holds tokens beyond its node without a leaf of
 * its own gets a row too. If there are more rows than `mostRows`, subtrees are folded: those on the
 * selected request's path are folded last, before them those in use, then those used most recently.
 */

const TOP_SHARE = 0.6;

/**
 * `nodes` as a frame gives them (parents first), `lockers(id)` the requests whose path ends at that
 * node, `outline` whether every node has a row of its own, as on a phone. Returns `{items, rows, levels}`;
 * an item has kind "node", "request" or "rest", `row`, `level`, `parentItem`, and if something is folded
 * `folded: {nodes, blocks}`.
 */
export function layoutTree(nodes, { path, endsAt, mostRows, outline = false }) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const rank = (node) => (path.has(node.id) ? 2e9 : node.idle ? 0 : 1e9) + node.since;
  const open = chooseOpen(nodes, byId, rank, endsAt, mostRows);
  const items = [];
  let row = 0;
  let levels = 0;

  const place = (item, level, parentItem) => {
    levels = Math.max(levels, level + 1);
    items.push(Object.assign(item, { level, parentItem, row, children: [] }));
    parentItem?.children.push(item);
    return item;
  };
  const visit = (id, level, parentItem) => {
    const node = byId.get(id);
    const item = place({ kind: "node", node, folded: null }, level, parentItem);
    if (!node.children.length) row += 1;
    else if (open.has(id)) {
      if (outline) row += 1;
      descend(id, level + 1, item);
    } else {
      item.folded = weigh(node, byId);
      row += 1;
    }
  };
  const descend = (id, level, item) => {
    const { shown, rest } = open.get(id);
    for (const child of shown) visit(child, level, item);
    for (const request of endsAt.get(id) ?? []) {
      place({ kind: "request", request, at: id }, level, item);
      row += 1;
    }
    if (rest.length) {
      const sum = rest.map((child) => weigh(byId.get(child), byId));
      place({ kind: "rest", subtrees: rest.length, folded: total(sum) }, level, item);
      row += 1;
    }
  };
  descend(0, 0, null);
  return { items, rows: row, levels };
}

/** The open nodes, each with the children that are shown and those that are summed up as a rest. */
function chooseOpen(nodes, byId, rank, endsAt, mostRows) {
  const open = new Map();
  const childrenOf = (id) =>
    id === 0
      ? nodes.filter(({ parent }) => parent === 0).map((node) => node.id)
      : byId.get(id).children;
  let rows = 1;
  const openUp = (id) => {
    const children = [...childrenOf(id)].sort((a, b) => a - b);
    const requests = endsAt.get(id)?.length ?? 0;
    // The top level leaves some rows for deeper levels.
    const left = id === 0 ? Math.ceil(mostRows * TOP_SHARE) : mostRows - rows + 1;
    const room = Math.max(2, left - requests);
    let shown = children;
    let rest = [];
    if (children.length > room) {
      const best = new Set(
        [...children].sort((a, b) => rank(byId.get(b)) - rank(byId.get(a))).slice(0, room - 1),
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
    candidates = candidates.filter((id) => byId.get(id).children.length);
    if (!candidates.length) return open;
    candidates.sort((a, b) => rank(byId.get(b)) - rank(byId.get(a)));
    const next = candidates.shift();
    const more = byId.get(next).children.length + (endsAt.get(next)?.length ?? 0) - 1;
    const mustSee = rank(byId.get(next)) >= 2e9;
    if (rows + Math.min(more, 2) > mostRows && !mustSee) continue;
    candidates.push(...openUp(next));
  }
}

function weigh(node, byId) {
  const below = node.children.map((child) => weigh(byId.get(child), byId));
  return total([...below, { nodes: 1, blocks: node.blocks.length }]);
}

function total(parts) {
  return {
    nodes: parts.reduce((sum, { nodes }) => sum + nodes, 0),
    blocks: parts.reduce((sum, { blocks }) => sum + blocks, 0),
  };
}
