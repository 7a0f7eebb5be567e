/**
 * The block map as a panel: header, canvas, a line on blocks that changed owners, the selected request's block
 * table, and the description of the highlighted block.
 */

/** @import { BlockGrid } from "../drawing/block_grid.js" */
/** @import { Claim } from "../drawing/blocks.js" */
/** @import { Theme } from "../drawing/palette.js" */
/** @import { Board } from "../board/board.js" */
/** @import { Block, Frame } from "../model/frame.js" */
/** @import { Model } from "../model/model.js" */
import { classOf, describeBlock, textOf } from "../board/descriptions.js";
import { patchChildren } from "../board/patch_children.js";
import { usedGrid } from "../drawing/block_grid.js";
import { drawHighlighted } from "../drawing/block_sharers.js";
import { claimOf, drawBlocks, drawSwatch } from "../drawing/blocks.js";
import { CanvasPainter } from "../drawing/canvas_painter.js";
import { h } from "../drawing/html.js";
import { blockTableNodes, scrollToChanged } from "./block_table.js";
import { ChangedPanel } from "./changed_panel.js";
import { blockTable, tablesBox } from "./tables.js";

/** @type {Block["kind"][]} */
const FORMS = ["unshared", "shared", "cached", "free"];
const BLEED = 6;

/** @param {Frame} frame */
function pagesWords({ windowPages: pages }) {
  if (!pages) return "";
  return `; ${pages.used} of ${pages.all} window pages in use, ${pages.lacking} blocks without one`;
}

export class MapPanel {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.canvas = h("canvas", { role: "application", tabindex: "0" });
    this.counts = FORMS.map((form) => {
      const glyph = new CanvasPainter(h("canvas", { "aria-hidden": "true" }));
      const text = document.createTextNode("");
      return { form, glyph, text, element: h("span", {}, glyph.canvas, text) };
    });
    this.cut = new CanvasPainter(h("canvas", { "aria-hidden": "true" }));
    this.cutText = document.createTextNode("");
    this.pagesText = document.createTextNode("");
    const tip =
      "Sliding layers have a memory of their own, of window pages. A block without one has no KV there.";
    this.pages = [
      h("span", { title: tip, hidden: true }, this.cut.canvas, this.cutText),
      h("span", { title: tip, hidden: true }, this.pagesText),
    ];
    this.header = h(
      "div",
      { class: "swatches" },
      h("h2", {}, "KV blocks"),
      ...this.counts.map(({ element }) => element),
      ...this.pages,
    );
    this.changed = new ChangedPanel();
    this.table = h("div", { class: "table" });
    this.told = h("p", { class: "note told", role: "status", hidden: true });
    this.alternative = tablesBox();
    this.element = h(
      "section",
      { class: "map", "aria-label": "KV blocks" },
      this.header,
      this.canvas,
      this.changed.element,
      this.table,
      this.told,
      this.alternative,
    );
    this.painter = new CanvasPainter(this.canvas);
    /** The request whose block table is shown. @type {number | null} */
    this.tableOf = null;
    this.listen();
  }

  /** @param {Model} model */
  setModel(model) {
    /** @type {Model} */
    this.model = model;
  }

  layout() {
    const { unit } = this.board;
    /** @type {number} */
    this.width = this.element.clientWidth / unit;
    /** @type {BlockGrid} */
    this.grid = usedGrid(this.model, this.width, BLEED);
    this.canvas.style.margin = `0 ${-BLEED * unit}px`;
    /** The theme of the glyphs. @type {Theme | null} */
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
    /** @type {Claim} */
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

  /** Writes the description of the highlighted block. @param {Frame} frame @param {number | null} block */
  describeBlock(frame, block) {
    const lines = block == null ? null : describeBlock(this.model, frame, block);
    this.told.hidden = !lines;
    if (!lines) return;
    const words = lines.map((line) => h("span", { class: classOf(line) }, textOf(line)));
    this.told.replaceChildren(...words.flatMap((node, i) => (i ? [". ", node] : [node])));
  }

  /** @param {Frame} frame */
  describe(frame) {
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
    /** @param {MouseEvent} event */
    const blockAt = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const { unit } = board;
      return this.grid.at(
        (event.clientX - box.left) / unit - BLEED,
        (event.clientY - box.top) / unit,
      );
    };
    /**
     * @template {keyof HTMLElementEventMap} K
     * @param {K} name @param {(event: HTMLElementEventMap[K]) => void} handler
     */
    const on = (name, handler) =>
      this.canvas.addEventListener(name, (event) => this.grid && handler(event), { signal });
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
      /** @type {Record<string, number>} */
      const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
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

  /** Selects an owner of a block; for a shared block, each call selects the next owner. @param {number} id */
  selectOwner(id) {
    const { owners } = this.board.frame.blocks[id];
    const { selected } = this.board.store;
    if (owners.length)
      this.board.select(
        owners[(owners.indexOf(/** @type {number} */ (selected)) + 1) % owners.length],
      );
  }
}
