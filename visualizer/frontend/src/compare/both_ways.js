/** The step at which two runs part, in both: the decisions in words and the memory after it. */

/** @import { Theme } from "../drawing/palette.js" */
/** @import { Model } from "../model/model.js" */
/** @import { PartnerOf } from "./alignment.js" */
/** @import { Difference } from "./compare.js" */
import { spansOf } from "../board/sheet.js";
import { CanvasPainter } from "../drawing/canvas_painter.js";
import { h, plural } from "../drawing/html.js";
import { drawMiniMap, miniGrid } from "../drawing/mini_map.js";
import { wordNodes } from "../drawing/words_html.js";

export class BothWays {
  /**
   * @param {string[]} names @param {Difference} difference @param {Model[]} models
   * @param {PartnerOf} partnerOf  finds A's request for one of B
   */
  constructor(names, difference, models, partnerOf) {
    this.names = names;
    this.difference = difference;
    this.models = models;
    this.partnerOf = partnerOf;
    this.canvases = models.map((_, side) =>
      h("canvas", { role: "img", "aria-label": this.#label(side) }),
    );
    this.painters = this.canvases.map((canvas) => new CanvasPainter(canvas));
    this.words = models.map((_, side) => h("p", { "data-side": side }));
    const runs = models.map(({ settings }, side) =>
      h(
        "div",
        { class: "way", "data-side": side },
        h("p", { class: "whose" }, h("strong", {}, names[side]), capacity(names[side], settings)),
        this.canvases[side],
        this.words[side],
      ),
    );
    this.element = h(
      "section",
      { class: "ways", "aria-label": "The decision in both runs" },
      h("h2", {}, `Step ${difference.step}, two ways`),
      h("div", { class: "pair" }, ...runs),
    );
  }

  /** @param {number} side */
  #frame(side) {
    const { models, difference } = this;
    const { firstStep, lastStep } = models[side];
    return models[side].frame(Math.min(Math.max(difference.step, firstStep), lastStep));
  }

  /** @param {number} side */
  #label(side) {
    const { unshared, shared, cached, free } = this.#frame(side).counts;
    return `KV blocks in ${this.names[side]}: ${unshared + shared} used, ${cached} cached, ${free} free`;
  }

  /**
   * Draws both maps and writes both decisions; `unit` is one board pixel.
   *
   * @param {Theme} theme @param {number} unit
   */
  draw(theme, unit) {
    const most = Math.max(...this.models.map(({ settings }) => settings.num_blocks));
    this.models.forEach((model, side) => {
      /** @type {Pick<Model, "request" | "laneOf">} */
      const marked = {
        request: (id) => model.request(id),
        laneOf: (id) => this.#laneOf(side, id ?? null),
      };
      const context = { model: marked, theme, selected: null };
      this.words[side].replaceChildren(
        ...wordNodes(spansOf(this.difference[side ? "b" : "a"], model), context),
      );
      const width = Number(this.canvases[side].parentElement?.clientWidth) / unit;
      if (!width) return;
      const { blocks } = this.#frame(side);
      const grid = miniGrid(blocks.length, width, most);
      this.painters[side].begin(width, grid.height, unit, theme);
      drawMiniMap(this.painters[side], blocks, grid, (request) => this.#laneOf(side, request));
    });
  }

  /**
   * A request has one mark in both runs, that of A.
   *
   * @param {number} side @param {number | null} id
   * @returns {number | null}
   */
  #laneOf(side, id) {
    const inA = side ? this.models[0].laneOf(this.partnerOf(0, id)) : null;
    return inA ?? this.models[side].laneOf(id);
  }
}

/**
 * " 40 blocks" in muted words, unless the run's name says so.
 *
 * @param {string} name @param {{num_blocks: number}} settings
 */
function capacity(name, { num_blocks: blocks }) {
  const words = plural(blocks, "block");
  return name.includes(words) ? null : h("span", { class: "muted" }, ` ${words}`);
}
