/** The prefix tree as a panel: header, canvas, the pointer over it, and an outline in text. */

import { h, plural, visible } from "./html.js";
import { Pencil } from "./pencil.js";
import { listed } from "./tell.js";
import { drawTree, treeColumns, treeItemAt, treeRow } from "./tree.js";
import { layoutTree } from "./tree_layout.js";

const MOST_ROWS = { wide: 9, narrow: 14 };

export class TreePanel {
  constructor(board) {
    this.board = board;
    this.canvas = h("canvas", { role: "img" });
    this.count = h("span", { class: "count" });
    this.outline = h("ul", { class: "for-screen-readers" });
    this.element = h(
      "section",
      { class: "tree", "aria-label": "Prefix tree" },
      h("h2", {}, "Prefix tree", this.count),
      this.canvas,
      this.outline,
    );
    this.pencil = new Pencil(this.canvas);
    this.tallest = 0;
    this.listen();
  }

  setModel(model) {
    this.model = model;
  }

  layout() {
    this.width = this.element.clientWidth / this.board.unit;
    this.tallest = 0;
  }

  draw() {
    const { board, model, width, pencil } = this;
    const { frame, narrow, unit, store, theme } = board;
    const { tree } = frame;
    const { selected } = store;
    const claim = selected == null || !model.request(selected) ? null : frame.path(selected);
    const path = new Set(claim?.nodes ?? []);
    const layout = layoutTree(tree, {
      path,
      endsAt: endsWithoutLeaf(frame),
      mostRows: MOST_ROWS[narrow ? "narrow" : "wide"],
      outline: narrow,
    });
    const rowHeight = treeRow(narrow, unit > 1);
    this.scene = {
      model,
      frame,
      layout,
      path,
      width,
      rowHeight,
      narrow,
      selected,
      waiting: claim ? !claim.holds : false,
      columns: treeColumns(layout, width, narrow),
    };
    // The panel only grows while the reader steps: what lies below it must not jump.
    this.tallest = Math.max(this.tallest, layout.rows * rowHeight + 6);
    pencil.begin(width, Math.max(this.tallest, rowHeight), unit, theme);
    drawTree(pencil, this.scene);
  }

  /** What stands around the picture in words. */
  write() {
    const { narrow, frame } = this.board;
    const { tree } = frame;
    const blocks = tree.reduce((sum, node) => sum + node.blocks.length, 0);
    const inNodes = `${plural(blocks, "block")} in ${plural(tree.length, "node")}`;
    this.count.textContent = !tree.length
      ? "empty"
      : narrow
        ? inNodes
        : `${inNodes}; half-filled squares are not in it yet`;
    this.describe(tree, inNodes);
  }

  describe(tree, inNodes) {
    this.canvas.setAttribute("aria-label", `Prefix tree: ${inNodes}; an outline follows`);
    const { model } = this;
    this.outline.replaceChildren(
      ...tree
        .slice(0, 200)
        .map((node) =>
          h(
            "li",
            {},
            `depth ${node.depth}, ${plural(node.blocks.length, "block")}, lock ${node.lock}, ${node.owners.map((id) => model.request(id).name).join(", ") || "cached"}: ${node.text.slice(0, 60)}`,
          ),
        ),
    );
  }

  listen() {
    const { tip, signal } = this.board;
    const itemAt = (event) => {
      if (!this.scene) return undefined;
      const box = this.canvas.getBoundingClientRect();
      const { unit } = this.board;
      return treeItemAt(
        this.scene,
        (event.clientX - box.left) / unit,
        (event.clientY - box.top) / unit,
      );
    };
    const on = (name, handler) => this.canvas.addEventListener(name, handler, { signal });
    on("pointermove", (event) => {
      const item = itemAt(event);
      this.canvas.style.cursor = ownersOf(item).length ? "pointer" : "";
      tip.show(event, item ? this.tell(item) : null);
    });
    on("pointerleave", () => tip.hide());
    on("click", (event) => {
      const owners = ownersOf(itemAt(event));
      const { selected } = this.board.store;
      if (owners.length) this.board.select(owners[(owners.indexOf(selected) + 1) % owners.length]);
    });
  }

  tell(item) {
    const { model, board } = this;
    if (item.kind === "request")
      return [
        `${model.request(item.request).name}: what it computed after this is not in the tree yet`,
      ];
    if (item.kind === "rest")
      return [`${item.subtrees} more subtrees: ${plural(item.folded.blocks, "block")}`];
    const { node } = item;
    const names = node.owners.map((id) => model.request(id).name);
    const used = names.length
      ? `lock ${node.lock}: used by ${listed(names)}`
      : `lock 0: idle for ${plural(board.frame.step - node.since, "step")}, may be evicted`;
    return [
      `${plural(node.blocks.length, "block")}: ${node.blocks.slice(0, 16).join(", ")}${node.blocks.length > 16 ? " …" : ""}`,
      used,
      { text: visible(node.text.slice(0, 400)), mono: true },
    ];
  }
}

function ownersOf(item) {
  if (!item || item.kind === "rest") return [];
  return item.kind === "request" ? [item.request] : item.node.owners;
}

/**
 * Running requests whose path ends at a node that others continue (or at the root): node id -> request
 * ids. They have no leaf to be named at.
 */
function endsWithoutLeaf(frame) {
  const ends = new Map();
  const inner = new Set(frame.tree.filter((node) => node.children.length).map((node) => node.id));
  for (const { request, node } of frame.tails) {
    if (node !== 0 && !inner.has(node)) continue;
    ends.set(node, [...(ends.get(node) ?? []), request]);
  }
  return ends;
}
