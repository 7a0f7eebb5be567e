/**
 * The block map as a panel: header, canvas, a line on blocks that changed owners, the selected request's block
 * table, and the description of the highlighted block.
 */

import type { Board, BoardContext, Panel } from "../board/board.ts";
import { classOf, describeBlock, textOf } from "../board/descriptions.ts";
import { Part } from "../board/part.ts";
import { patchChildren } from "../board/patch_children.ts";
import { type BlockGrid, usedGrid } from "../drawing/block_grid.ts";
import { drawHighlighted } from "../drawing/block_sharers.ts";
import { type Claim, claimOf, drawBlocks, drawSwatch } from "../drawing/blocks.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, hide, pointIn, setAttribute } from "../drawing/html.ts";
import type { Theme } from "../drawing/palette.ts";
import type { Block, Frame } from "../model/frame.ts";
import type { Model } from "../model/model.ts";
import { blockTableNodes, paintBlockTable, scrollToChanged } from "./block_table.ts";
import { ChangedPanel } from "./changed_panel.ts";
import { baseline, Painted, TITLE } from "./painted.ts";
import { PlacesPanel } from "./places_panel.ts";
import { blockTable, tablesBox } from "./tables.ts";

const FORMS: Block["kind"][] = ["unshared", "shared", "cached", "free"];
const BLEED = 6;
const HEAD = { line: 16, swatch: 17, tight: 390 }; // px, as in board.css

const PAGES_TIP =
  "Some layers do not have the KV of a block with a cut corner: it has no window page, or is another group's.";

export class MapPanel extends Part {
  reads: Panel["reads"] = ["selected", "block", "touched"];
  canvas = h("canvas", {
    role: "application",
    tabindex: "0",
    click: (event) => this.clicked(event),
    keydown: (event) => this.key(event),
  });
  painter = new CanvasPainter(this.canvas);
  counts = FORMS.map((form) => {
    const glyph = new CanvasPainter(h("canvas", { "aria-hidden": "true" }));
    const text = document.createTextNode("");
    return { form, glyph, text, element: h("span", glyph.canvas, text) };
  });
  cut = new CanvasPainter(h("canvas", { "aria-hidden": "true" }));
  cutText = document.createTextNode("");
  pagesText = document.createTextNode("");
  pages = [
    h("span", { title: PAGES_TIP, hidden: true }, this.cut.canvas, this.cutText),
    h("span", { title: PAGES_TIP, hidden: true }, this.pagesText),
  ];
  head = new Painted(
    h(
      "div.swatches.flow.small",
      h("h2", "KV blocks"),
      ...this.counts.map(({ element }) => element),
      ...this.pages,
    ),
  );
  places = new PlacesPanel(this.board);
  changed = new ChangedPanel();
  table = h("div.table");
  tablePicture = new Painted(this.table);
  painted = [this.head, this.changed.painted, this.tablePicture];
  told = h("p.note.told", { role: "status", hidden: true });
  alternative = tablesBox();
  element = h(
    "section.map",
    { "aria-label": "KV blocks" },
    this.head.element,
    this.canvas,
    this.places.element,
    this.changed.painted.element,
    this.tablePicture.element,
    this.told,
    this.alternative,
  );
  /** The request whose block table is shown. */
  tableOf: number | null = null;
  model!: Model;
  width!: number;
  grid!: BlockGrid;
  /** The theme of the glyphs. */
  drawn!: Theme | null;
  claim!: Claim;

  constructor(board: Board) {
    super(board);
    board.tooltip.listen(
      this.canvas,
      (event) => this.blockAt(event),
      (id) => describeBlock(this.model, board.frame, id),
    );
  }

  setModel(model: Model) {
    this.model = model;
  }

  layout() {
    const { unit } = this.board;
    this.width = this.element.clientWidth / unit;
    this.grid = usedGrid(this.model, this.width, BLEED);
    this.canvas.style.margin = `0 ${-BLEED * unit}px`;
    this.drawn = null;
  }

  /** Draws the header's glyphs, which change with theme and size only. */
  drawSwatches() {
    const { unit, theme } = this.board;
    if (this.drawn === theme) return;
    this.drawn = theme;
    for (const { form, glyph } of this.counts) {
      glyph.begin(12, 10, unit, theme);
      drawSwatch(glyph, form);
    }
    this.cut.begin(12, 10, unit, theme);
    drawSwatch(this.cut, "cut");
  }

  draw() {
    const { board, model, grid, painter } = this;
    const { frame, theme, unit, store } = board;
    this.claim = claimOf(frame, model, store.selected);
    this.drawSwatches();
    this.changed.read({ frame, width: this.width });
    this.places.draw(frame, this.width, board, store.selected);
    painter.begin(this.width, grid.height + BLEED, unit, theme, BLEED);
    const { selected, block, touched } = store;
    const { claim } = this;
    drawBlocks(painter, { model, frame, grid, claim, selected, untouched: !touched });
    if (block != null && block < grid.count)
      drawHighlighted(painter, { model, frame, grid, block });
  }

  /** Writes the text around the picture. */
  write() {
    const { frame, store, unit } = this.board;
    const context = this.#context();
    for (const { form, text } of this.counts) {
      const words = `${frame.counts[form]} ${form}`;
      if (text.data !== words) text.data = words;
    }
    const { cutWords } = frame;
    for (const [i, span] of this.pages.entries()) hide(span, !cutWords[i]);
    [this.cutText.data = "", this.pagesText.data = ""] = cutWords;
    this.changed.write(context);
    patchChildren(this.table, blockTableNodes(context));
    scrollToChanged(this.table, unit, this.tableOf !== store.selected);
    this.tableOf = store.selected;
  }

  #context() {
    const { board, claim, width } = this;
    return { ...board.context(), unit: board.unit, claim, width };
  }

  /** Paints the same text, but for the description of a block. */
  paint() {
    const context = this.#context();
    this.#paintHead(context);
    this.changed.paint(context);
    paintBlockTable(this.tablePicture, context);
  }

  #paintHead(context: BoardContext & { unit: number; width: number }) {
    const { width, frame, theme } = context;
    const items: [Parameters<typeof drawSwatch>[1] | null, string][] = FORMS.map((form) => [
      form,
      `${frame.counts[form]} ${form}`,
    ]);
    for (const [i, words] of frame.cutWords.entries()) items.push([i ? null : "cut", words]);
    const label = items.map(([, words]) => words).join(", ");
    const painter = this.head.begin(width, 2 * HEAD.line, context, label);
    painter.text("KV blocks", 0, baseline(TITLE.size, HEAD.line), TITLE);
    const isTight = width <= HEAD.tight;
    const gap = isTight ? 10 : 13;
    let [x, y] = isTight ? [0, HEAD.line] : [painter.measure("KV blocks", TITLE) + gap, 0];
    for (const [form, words] of items) {
      const indent = form ? HEAD.swatch : 0;
      const taken = indent + painter.measure(words);
      if (x && x + taken > width) [x, y] = [0, y + HEAD.line];
      const base = y + baseline(11, HEAD.line);
      painter.context.translate(x, base - 9);
      if (form) drawSwatch(painter, form);
      painter.context.translate(-x, 9 - base);
      painter.text(words, x + indent, base, { color: theme.muted });
      x += taken + gap;
    }
  }

  tables() {
    return [blockTable(this.board)];
  }

  /** Writes the description of the highlighted block. */
  describeBlock(frame: Frame, block: number | null) {
    const lines = block == null ? null : describeBlock(this.model, frame, block);
    hide(this.told, !lines);
    if (!lines) return;
    const words = lines.map((line) => h("span", { class: classOf(line) }, textOf(line)));
    this.told.replaceChildren(...words.flatMap((node, i) => (i ? [". ", node] : [node])));
  }

  writeLabels() {
    const { frame, store } = this.board;
    this.describeBlock(frame, store.block);
    const { unshared, shared, cached, free } = frame.counts;
    setAttribute(
      this.canvas,
      "aria-label",
      `${frame.blocks.length} KV blocks: ${unshared} unshared, ${shared} shared, ${cached} cached, ` +
        `${free} free${frame.cutWords.map((words) => `, ${words}`).join("")}; arrow keys highlight a block, Enter selects its owner; a table follows`,
    );
  }

  /** The block under the pointer, or null. */
  blockAt(event: MouseEvent) {
    const [x, y] = pointIn(this.canvas, event, this.board.unit);
    const id = this.grid?.at(x - BLEED, y) ?? -1;
    return id < 0 ? null : id;
  }

  clicked(event: MouseEvent) {
    const id = this.blockAt(event);
    if (id === null) return;
    this.board.tooltip.hide(); // its text is below the map now
    this.board.lookAt(id);
    this.selectOwner(id);
  }

  key(event: KeyboardEvent) {
    const { board, grid } = this;
    const { block } = board.store;
    const { columns } = grid;
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    const by = moves[event.key as keyof typeof moves];
    if (by) {
      const next = block == null ? 0 : block + by;
      if (next >= 0 && next < grid.count) board.lookAt(next);
    } else if (event.key === "Enter" && block != null) this.selectOwner(block);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Selects an owner of a block; for a shared block, each call selects the next owner. */
  selectOwner(id: number) {
    const { owners } = this.board.frame.blocks[id];
    const { selected } = this.board.store;
    if (owners.length)
      this.board.select(owners[(owners.indexOf(selected as number) + 1) % owners.length]);
  }
}
