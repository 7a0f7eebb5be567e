/**
 * The block map as a panel: header, canvas, a line on blocks that changed owners, the selected request's block
 * table, and the description of the highlighted block.
 */

import type { Board } from "../board/board.ts";
import { classOf, describeBlock, textOf } from "../board/descriptions.ts";
import { patchChildren } from "../board/patch_children.ts";
import { type BlockGrid, usedGrid } from "../drawing/block_grid.ts";
import { drawHighlighted } from "../drawing/block_sharers.ts";
import { type Claim, claimOf, drawBlocks, drawSwatch } from "../drawing/blocks.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h } from "../drawing/html.ts";
import type { Theme } from "../drawing/palette.ts";
import type { Block, Frame } from "../model/frame.ts";
import type { Model } from "../model/model.ts";
import { blockTableNodes, scrollToChanged } from "./block_table.ts";
import { ChangedPanel } from "./changed_panel.ts";
import { blockTable, tablesBox } from "./tables.ts";

const FORMS: Block["kind"][] = ["unshared", "shared", "cached", "free"];
const BLEED = 6;

function pagesWords({ windowPages: pages }: Frame) {
  if (!pages) return "";
  return `; ${pages.used} of ${pages.all} window pages in use, ${pages.lacking} blocks without one`;
}

export class MapPanel {
  board: Board;
  canvas = h("canvas", { role: "application", tabindex: "0" });
  counts: {
    form: "shared" | "cached" | "free" | "unshared";
    glyph: CanvasPainter;
    text: Text;
    element: HTMLSpanElement;
  }[];
  cut = new CanvasPainter(h("canvas", { "aria-hidden": "true" }));
  cutText = document.createTextNode("");
  pagesText = document.createTextNode("");
  pages: HTMLSpanElement[];
  header: HTMLDivElement;
  changed = new ChangedPanel();
  table = h("div.table");
  told = h("p.note.told", { role: "status", hidden: true });
  alternative = tablesBox();
  element: HTMLElement;
  painter: CanvasPainter;
  /** The request whose block table is shown. */
  tableOf: number | null = null;
  model!: Model;
  width!: number;
  grid!: BlockGrid;
  /** The theme of the glyphs. */
  drawn!: Theme | null;
  claim!: Claim;

  constructor(board: Board) {
    this.board = board;
    this.counts = FORMS.map((form) => {
      const glyph = new CanvasPainter(h("canvas", { "aria-hidden": "true" }));
      const text = document.createTextNode("");
      return { form, glyph, text, element: h("span", glyph.canvas, text) };
    });
    const tip =
      "Sliding layers have a memory of their own, of window pages. A block without one has no KV there.";
    this.pages = [
      h("span", { title: tip, hidden: true }, this.cut.canvas, this.cutText),
      h("span", { title: tip, hidden: true }, this.pagesText),
    ];
    this.header = h(
      "div.swatches",
      h("h2", "KV blocks"),
      ...this.counts.map(({ element }) => element),
      ...this.pages,
    );
    this.element = h(
      "section.map",
      { "aria-label": "KV blocks" },
      this.header,
      this.canvas,
      this.changed.element,
      this.table,
      this.told,
      this.alternative,
    );
    this.painter = new CanvasPainter(this.canvas);
    this.listen();
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
    drawSwatch(this.cut, "without page");
  }

  draw() {
    const { board, model, grid, painter } = this;
    const { frame, theme, unit, store } = board;
    this.claim = claimOf(frame, model, store.selected);
    this.drawSwatches();
    this.changed.draw({ frame, model, theme, unit, selected: store.selected, width: this.width });
    painter.begin(this.width + 2 * BLEED, grid.height + BLEED, unit, theme);
    painter.context.translate(BLEED, 0);
    const { selected, block, touched } = store;
    const { claim } = this;
    drawBlocks(painter, { model, frame, grid, claim, selected, untouched: !touched });
    if (block != null && block < grid.count)
      drawHighlighted(painter, { model, frame, grid, block });
  }

  /** Writes the text around the picture. */
  write() {
    const { model, claim } = this;
    const { frame, theme, store, unit } = this.board;
    const context = { model, frame, theme, selected: store.selected, claim, width: this.width };
    for (const { form, text } of this.counts) text.data = `${frame.counts[form]} ${form}`;
    const pages = frame.windowPages;
    for (const span of this.pages) span.hidden = !pages;
    this.cutText.data = `${pages?.lacking} without window page`;
    this.pagesText.data = `${pages?.used} of ${pages?.all} window pages`;
    this.changed.write(context);
    patchChildren(this.table, blockTableNodes(context));
    scrollToChanged(this.table, unit, this.tableOf !== store.selected);
    this.tableOf = store.selected;
    this.describeBlock(frame, store.block);
    this.describe(frame);
  }

  tables() {
    return [blockTable(this.board)];
  }

  /** Writes the description of the highlighted block. */
  describeBlock(frame: Frame, block: number | null) {
    const lines = block == null ? null : describeBlock(this.model, frame, block);
    this.told.hidden = !lines;
    if (!lines) return;
    const words = lines.map((line) => h("span", { class: classOf(line) }, textOf(line)));
    this.told.replaceChildren(...words.flatMap((node, i) => (i ? [". ", node] : [node])));
  }

  describe(frame: Frame) {
    const { unshared, shared, cached, free } = frame.counts;
    this.canvas.setAttribute(
      "aria-label",
      `${frame.blocks.length} KV blocks: ${unshared} unshared, ${shared} shared, ${cached} cached, ` +
        `${free} free${pagesWords(frame)}; arrow keys highlight a block, Enter selects its owner; a table follows`,
    );
  }

  listen() {
    const { board } = this;
    const { tooltip, store, signal } = board;
    const blockAt = (event: MouseEvent) => {
      const box = this.canvas.getBoundingClientRect();
      const { unit } = board;
      return this.grid.at(
        (event.clientX - box.left) / unit - BLEED,
        (event.clientY - box.top) / unit,
      );
    };
    const on = <K extends keyof HTMLElementEventMap>(
      name: K,
      handler: (event: HTMLElementEventMap[K]) => void,
    ) => this.canvas.addEventListener(name, (event) => this.grid && handler(event), { signal });
    on("pointermove", (event) => {
      const id = blockAt(event);
      this.canvas.style.cursor = id < 0 ? "" : "pointer";
      tooltip.show(event, () => describeBlock(this.model, board.frame, blockAt(event)));
    });
    on("pointerleave", () => tooltip.hide());
    on("click", (event) => {
      const id = blockAt(event);
      if (id < 0) return;
      tooltip.hide(); // its text is below the map now
      board.lookAt(id);
      this.selectOwner(id);
    });
    on("keydown", (event) => {
      const { columns } = this.grid;
      const moves: Record<string, number> = {
        ArrowLeft: -1,
        ArrowRight: 1,
        ArrowUp: -columns,
        ArrowDown: columns,
      };
      const by = moves[event.key];
      if (by) {
        const next = store.block == null ? 0 : store.block + by;
        if (next >= 0 && next < this.grid.count) board.lookAt(next);
      } else if (event.key === "Enter" && store.block != null) this.selectOwner(store.block);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** Selects an owner of a block; for a shared block, each call selects the next owner. */
  selectOwner(id: number) {
    const { owners } = this.board.frame.blocks[id];
    const { selected } = this.board.store;
    if (owners.length)
      this.board.select(owners[(owners.indexOf(selected as number) + 1) % owners.length]);
  }
}
