/** The prefix tree as a panel: header, canvas, pointer events, and a table. */

import type { Panel, PanelBoard } from "../board/board.ts";
import { type Line, listed, textOf } from "../board/descriptions.ts";
import { Part } from "../board/part.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, plural, pointIn, say, setAttribute, visible } from "../drawing/html.ts";
import { drawTree, type TreeScene, treeColumns, treeItemAt, treeRow } from "../drawing/tree.ts";
import { layoutTree, type TreeItem } from "../drawing/tree_layout.ts";
import type { Frame } from "../model/frame.ts";
import type { Model } from "../model/model.ts";
import type { TreeNode } from "../model/tree.ts";
import { Painted, paintTitle } from "./painted.ts";
import { tablesBox, treeTable } from "./tables.ts";

const MOST_ROWS = { wide: 7, narrow: 14 };

export class TreePanel<Of extends PanelBoard = PanelBoard> extends Part<Of> {
  reads: Panel["reads"] = ["selected"];
  canvas = h("canvas", {
    role: "application",
    tabindex: "0",
    click: (event) => this.selectUser(this.itemAt(event)),
    blur: () => (this.told.hidden = true),
    keydown: (event) => this.key(event),
  });
  painter = new CanvasPainter(this.canvas);
  told = h("p.note.told", { role: "status", hidden: true });
  count = h("span.count.small.muted");
  title = new Painted(h("h2.cut", "Prefix tree", this.count));
  painted = [this.title];
  alternative = tablesBox();
  element = h(
    "section.tree",
    { "aria-label": "Prefix tree" },
    this.title.element,
    this.canvas,
    this.told,
    this.alternative,
  );
  model!: Model;
  width!: number;
  scene!: TreeScene;
  /** Index of the highlighted item. */
  pointed!: number;

  constructor(board: Of) {
    super(board);
    board.tooltip.listen(
      this.canvas,
      (event) => this.itemAt(event),
      (item) => this.describeItem(item),
      (item) => item.kind === "node" || ownersOf(item).length > 0,
    );
  }

  setModel(model: Model) {
    this.model = model;
  }

  layout() {
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
    say(this.count, this.#words());
    this.writeLabels();
  }

  paint() {
    const words = this.#words();
    paintTitle(this.title.begin(this.width, 16, this.board, words), "Prefix tree", words);
  }

  #inNodes() {
    const { tree } = this.board.frame;
    const blocks = tree.reduce((sum, node) => sum + node.blocks.length, 0);
    return `${plural(blocks, "block")} in ${plural(tree.length, "node")}`;
  }

  #words() {
    const { narrow, frame } = this.board;
    const { tree } = frame;
    const inNodes = this.#inNodes();
    const off = frame.state.settings.prefix_cache === "off";
    const none = off
      ? "the prefix cache is off"
      : frame.tails.length
        ? "no full block yet"
        : "empty";
    return !tree.length
      ? none
      : narrow
        ? inNodes
        : `${inNodes}; ${tree[0].marks.length ? "half a square: not in the GPU, dashed: not in the cache" : "half-filled squares are not in the tree yet"}`;
  }

  writeLabels() {
    if (!this.told.hidden) this.point(this.pointed);
    setAttribute(
      this.canvas,
      "aria-label",
      `Prefix tree: ${this.#inNodes()}; arrow keys move through it, Enter selects a request that uses the node; a table follows`,
    );
  }

  tables() {
    return [treeTable(this.board)];
  }

  /** Highlights an item with the arrow keys and describes it below the picture while the tree has the focus. */
  point(row: number) {
    const items = this.scene?.layout.items ?? [];
    const item = items[Math.min(Math.max(row, 0), items.length - 1)];
    this.pointed = item ? items.indexOf(item) : -1;
    this.told.hidden = !item;
    if (item) this.told.textContent = this.describeItem(item).map(textOf).join(". ");
    return item;
  }

  selectUser(item: TreeItem | undefined) {
    const owners = ownersOf(item);
    const { selected } = this.board.store;
    if (owners.length)
      this.board.select(owners[(owners.indexOf(selected as number) + 1) % owners.length]);
    const [block] = item?.kind === "node" ? item.node.blocks : [];
    if (block != null) this.board.lookAt(block);
  }

  /** The item under the pointer. */
  itemAt(event: MouseEvent): TreeItem | undefined {
    return this.scene && treeItemAt(this.scene, ...pointIn(this.canvas, event, this.board.unit));
  }

  key(event: KeyboardEvent) {
    const by = ({ ArrowUp: -1, ArrowDown: 1 } as Record<string, number>)[event.key];
    if (by) this.point(this.told.hidden ? 0 : this.pointed + by);
    else if (event.key === "Enter" && !this.told.hidden) this.selectUser(this.point(this.pointed));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  describeItem(item: TreeItem): Line[] {
    const { model, board } = this;
    if (item.kind === "request")
      return [
        `${model.requestSpan(item.request).name}: the tokens it computed after this node are not in the tree yet`,
      ];
    if (item.kind === "rest")
      return [`${item.subtrees} more subtrees: ${plural(item.folded.blocks, "block")}`];
    const { node } = item;
    if (node.marks.length) return describeMarks(node);
    const names = node.usersIn(model);
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

/** A chain of which only hashes are known. */
function describeMarks(node: TreeNode): Line[] {
  const hashes = node.marks.slice(0, 8).map(({ hash }) => hash);
  const more = node.marks.length > 8 ? " …" : "";
  const words = node.blocks.length
    ? `${plural(node.blocks.length, "block")} in ${node.places}`
    : `not in the cache: ${node.absence}`;
  const stored = node.blocks.length && node.since !== null ? [`stored in step ${node.since}`] : [];
  return [words, ...stored, { text: `${hashes.join(" ")}${more}` }];
}

function ownersOf(item: TreeItem | undefined) {
  if (!item || item.kind === "rest") return [];
  return item.kind === "request" ? [item.request] : item.node.owners;
}

/**
 * Running requests whose path ends at an inner node or at the root, as a map of node id to request ids. They
 * have no leaf that could show their names.
 */
function endsWithoutLeaf(frame: Frame) {
  const ends: Map<number, number[]> = new Map();
  const inner = new Set(frame.tree.filter((node) => node.children.length).map((node) => node.id));
  for (const { request, node } of frame.tails) {
    if (node !== 0 && !inner.has(node)) continue;
    ends.set(node, [...(ends.get(node) ?? []), request]);
  }
  return ends;
}
