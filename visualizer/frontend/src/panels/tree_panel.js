/** The prefix tree as a panel: header, canvas, pointer events, and a table. */

/** @import { Board } from "../board/board.js" */
/** @import { Line } from "../board/descriptions.js" */
/** @import { TreeScene } from "../drawing/tree.js" */
/** @import { TreeItem } from "../drawing/tree_layout.js" */
/** @import { Frame } from "../model/frame.js" */
/** @import { Model } from "../model/model.js" */
/** @import { TreeNode } from "../model/tree.js" */
import { listed, textOf } from "../board/descriptions.js";
import { CanvasPainter } from "../drawing/canvas_painter.js";
import { h, plural, visible } from "../drawing/html.js";
import { drawTree, treeColumns, treeItemAt, treeRow } from "../drawing/tree.js";
import { layoutTree } from "../drawing/tree_layout.js";
import { tablesBox, treeTable } from "./tables.js";

const MOST_ROWS = { wide: 7, narrow: 14 };

export class TreePanel {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.canvas = h("canvas", { role: "application", tabindex: "0" });
    this.told = h("p", { class: "note told", role: "status", hidden: true });
    this.count = h("span", { class: "count" });
    this.alternative = tablesBox();
    this.element = h(
      "section",
      { class: "tree", "aria-label": "Prefix tree" },
      h("h2", {}, "Prefix tree", this.count),
      this.canvas,
      this.told,
      this.alternative,
    );
    this.painter = new CanvasPainter(this.canvas);
    this.listen();
  }

  /** @param {Model} model */
  setModel(model) {
    /** @type {Model} */
    this.model = model;
  }

  layout() {
    /** @type {number} */
    this.width = this.element.clientWidth / this.board.unit;
  }

  get mostRows() {
    return MOST_ROWS[this.board.narrow ? "narrow" : "wide"];
  }

  /** The height for as many rows as the tree can have: it stays the same in all steps. */
  get height() {
    const { narrow, unit } = this.board;
    const { length } = this.model.requests;
    // A log without requests says nothing of later steps: its picture may grow.
    const rows = length ? Math.min(this.mostRows, 2 * length) : MOST_ROWS.wide;
    return rows * treeRow(narrow, unit > 1) + 6;
  }

  draw() {
    const { board, model, width, painter } = this;
    const { frame, narrow, unit, store, theme } = board;
    const { tree } = frame;
    const { selected } = store;
    const claim = selected == null || !model.request(selected) ? null : frame.path(selected);
    const path = new Set(claim?.nodes ?? []);
    const layout = layoutTree(tree, {
      path,
      endsAt: endsWithoutLeaf(frame),
      mostRows: this.mostRows,
      outline: narrow,
    });
    const rowHeight = treeRow(narrow, unit > 1);
    /** @type {TreeScene} */
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
    painter.begin(width, Math.max(this.height, layout.rows * rowHeight + 6), unit, theme);
    drawTree(painter, this.scene);
  }

  /** Writes the text around the picture. */
  write() {
    const { narrow, frame } = this.board;
    const { tree } = frame;
    if (!this.told.hidden) this.point(this.pointed);
    const blocks = tree.reduce((sum, node) => sum + node.blocks.length, 0);
    const inNodes = `${plural(blocks, "block")} in ${plural(tree.length, "node")}`;
    const none = frame.tails.length ? "no full block yet" : "empty";
    this.count.textContent = !tree.length
      ? none
      : narrow
        ? inNodes
        : `${inNodes}; ${tree[0].marks.length ? "half a square: not in the GPU, dashed: not in the cache" : "half-filled squares are not in the tree yet"}`;
    this.describe(inNodes);
  }

  /** @param {string} inNodes */
  describe(inNodes) {
    this.canvas.setAttribute(
      "aria-label",
      `Prefix tree: ${inNodes}; arrow keys move through it, Enter selects a request that uses the node; a table follows`,
    );
  }

  tables() {
    return [treeTable(this.board)];
  }

  /**
   * Highlights an item with the arrow keys and describes it below the picture while the tree has the focus.
   *
   * @param {number} row
   */
  point(row) {
    const items = this.scene?.layout.items ?? [];
    const item = items[Math.min(Math.max(row, 0), items.length - 1)];
    /** Index of the highlighted item. @type {number} */
    this.pointed = item ? items.indexOf(item) : -1;
    this.told.hidden = !item;
    if (item) this.told.textContent = this.describeItem(item).map(textOf).join(". ");
    return item;
  }

  /** @param {TreeItem | undefined} item */
  selectUser(item) {
    const owners = ownersOf(item);
    const { selected } = this.board.store;
    if (owners.length)
      this.board.select(
        owners[(owners.indexOf(/** @type {number} */ (selected)) + 1) % owners.length],
      );
    const [block] = item?.kind === "node" ? item.node.blocks : [];
    if (block != null) this.board.lookAt(block);
  }

  listen() {
    const { tooltip, signal } = this.board;
    /** @param {MouseEvent} event */
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
    /**
     * @template {keyof HTMLElementEventMap} K
     * @param {K} name @param {(event: HTMLElementEventMap[K]) => void} handler
     */
    const on = (name, handler) => this.canvas.addEventListener(name, handler, { signal });
    on("pointermove", (event) => {
      const item = itemAt(event);
      this.canvas.style.cursor = item?.kind === "node" || ownersOf(item).length ? "pointer" : "";
      tooltip.show(event, () => {
        const now = itemAt(event);
        return now && this.describeItem(now);
      });
    });
    on("pointerleave", () => tooltip.hide());
    on("click", (event) => this.selectUser(itemAt(event)));
    on("blur", () => (this.told.hidden = true));
    on("keydown", (event) => {
      const by = /** @type {Record<string, number>} */ ({ ArrowUp: -1, ArrowDown: 1 })[event.key];
      if (by) this.point(this.told.hidden ? 0 : this.pointed + by);
      else if (event.key === "Enter" && !this.told.hidden) {
        this.selectUser(this.point(this.pointed));
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** @param {TreeItem} item @returns {Line[]} */
  describeItem(item) {
    const { model, board } = this;
    if (item.kind === "request")
      return [
        `${model.requestSpan(item.request).name}: the tokens it computed after this node are not in the tree yet`,
      ];
    if (item.kind === "rest")
      return [`${item.subtrees} more subtrees: ${plural(item.folded.blocks, "block")}`];
    const { node } = item;
    if (node.marks.length) return describeMarks(node);
    const names = node.owners.map((id) => model.requestSpan(id).name);
    for (const label of node.holders) names.push(label ? `a buffer of ${label}` : "a buffer");
    const used = names.length
      ? `lock ${node.lock}: used by ${listed(names)}`
      : `lock 0: idle ${node.since === null ? "since before the log begins" : `for ${plural(board.frame.step - node.since, "step")}`}, may be evicted`;
    return [
      `${plural(node.blocks.length, "block")}: ${node.blocks.slice(0, 16).join(", ")}${node.blocks.length > 16 ? " …" : ""}`,
      used,
      { text: visible(node.text.slice(0, 400)) },
    ];
  }
}

/** A chain of which only hashes are known. @param {TreeNode} node @returns {Line[]} */
function describeMarks(node) {
  const hashes = node.marks.slice(0, 8).map(({ hash }) => hash);
  const more = node.marks.length > 8 ? " …" : "";
  const words = node.blocks.length
    ? `${plural(node.blocks.length, "block")} in ${node.places}`
    : `not in the cache: ${node.absence}`;
  const stored = node.blocks.length && node.since !== null ? [`stored in step ${node.since}`] : [];
  return [words, ...stored, { text: `${hashes.join(" ")}${more}` }];
}

/** @param {TreeItem | undefined} item */
function ownersOf(item) {
  if (!item || item.kind === "rest") return [];
  return item.kind === "request" ? [item.request] : item.node.owners;
}

/**
 * Running requests whose path ends at an inner node or at the root, as a map of node id to request ids. They
 * have no leaf that could show their names.
 *
 * @param {Frame} frame
 */
function endsWithoutLeaf(frame) {
  /** @type {Map<number, number[]>} */
  const ends = new Map();
  const inner = new Set(frame.tree.filter((node) => node.children.length).map((node) => node.id));
  for (const { request, node } of frame.tails) {
    if (node !== 0 && !inner.has(node)) continue;
    ends.set(node, [...(ends.get(node) ?? []), request]);
  }
  return ends;
}
