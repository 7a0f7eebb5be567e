import assert from "node:assert/strict";
import { test } from "node:test";

import { layoutTree } from "../src/drawing/tree_layout.ts";

function node(id, parent, children = [], { owners = [], since = id } = {}) {
  return { id, parent, children, blocks: [id, id + 100], owners, since, idle: owners.length === 0 };
}

const none = { path: new Set(), endsAt: new Map(), mostRows: 12 };

test("a node is in its first child's row, one level to the left", () => {
  const { items, rows, levels } = layoutTree(
    [node(1, 0, [2, 3]), node(2, 1), node(3, 1), node(4, 0)],
    none,
  );
  const rowOf = Object.fromEntries(items.map((item) => [item.node.id, [item.level, item.row]]));
  assert.deepEqual(rowOf, { 1: [0, 0], 2: [1, 0], 3: [1, 1], 4: [0, 2] });
  assert.deepEqual([rows, levels], [3, 2]);
});

test("an empty tree has no rows", () => {
  assert.deepEqual(layoutTree([], none).rows, 0);
});

test("a request that ends inside the tree has a row of its own", () => {
  const { items, rows } = layoutTree([node(1, 0, [2, 3]), node(2, 1), node(3, 1)], {
    ...none,
    endsAt: new Map([
      [1, [7]],
      [0, [9]],
    ]),
  });
  assert.deepEqual(
    items.filter(({ kind }) => kind === "request").map(({ request, level }) => [request, level]),
    [
      [7, 1],
      [9, 0],
    ],
  );
  assert.equal(rows, 4);
});

test("a large tree folds, and folded counts add up", () => {
  const nodes = [];
  for (let top = 1; top <= 30; top += 1) {
    nodes.push(node(top, 0, [top + 1000, top + 2000]));
    nodes.push(node(top + 1000, top), node(top + 2000, top));
  }
  const { items, rows } = layoutTree(nodes, none);
  assert.ok(rows <= 12);
  const shown = items.filter(({ kind, folded }) => kind === "node" && !folded).length;
  const folded = items.reduce((sum, item) => sum + (item.folded?.nodes ?? 0), 0);
  assert.equal(shown + folded, nodes.length);
});

test("the selected path is open even where the rest folds", () => {
  const nodes = [];
  for (let top = 1; top <= 30; top += 1)
    nodes.push(
      node(top, 0, [top + 1000, top + 2000]),
      node(top + 1000, top),
      node(top + 2000, top),
    );
  const { items } = layoutTree(nodes, { ...none, path: new Set([3, 1003]) });
  assert.ok(items.some((item) => item.node?.id === 1003));
});
