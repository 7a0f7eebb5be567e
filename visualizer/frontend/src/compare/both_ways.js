/**
 * A step in which two runs decide differently, in both: the decisions in words and the memory after it. It begins with
 * the step at which they part; buttons go to the others.
 */

import { spansOf } from "../board/sheet.js";
import { CanvasPainter } from "../drawing/canvas_painter.js";
import { h, plural } from "../drawing/html.js";
import { drawMiniMap, miniGrid } from "../drawing/mini_map.js";
import { wordNodes } from "../drawing/words_html.js";
import { sentence } from "../model/index.js";

export class BothWays {
  /**
   * `facts.difference` is not null; `partnerOf` finds A's request for one of B; `goTo(step)` is called when the
   * reader asks for another step.
   */
  constructor({ names, difference, differing = [] }, models, partnerOf, goTo) {
    Object.assign(this, { names, difference, models, partnerOf });
    this.steps = differing.includes(difference.step) ? differing : [difference.step];
    this.step = difference.step;
    this.title = h("h2", {});
    this.where = h("span", { class: "muted", role: "status" });
    this.buttons = [
      ["‹", "Previous decision that differs", -1],
      ["›", "Next decision that differs", 1],
    ].map(([sign, title, by]) => {
      const button = h("button", { type: "button", title, "aria-label": title }, sign);
      button.addEventListener("click", () => {
        this.step = this.steps[this.steps.indexOf(this.step) + by];
        goTo(this.step);
      });
      return button;
    });
    this.canvases = models.map(() => h("canvas", { role: "img" }));
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
      this.title,
      h("div", { class: "pair" }, ...runs),
      h("p", { class: "turn" }, ...this.buttons, this.where),
    );
  }

  #frame(side) {
    const { models, step } = this;
    const { firstStep, lastStep } = models[side];
    return models[side].frame(Math.min(Math.max(step, firstStep), lastStep));
  }

  #label(side) {
    const { unshared, shared, cached, free } = this.#frame(side).counts;
    return `KV blocks in ${this.names[side]}: ${unshared + shared} used, ${cached} cached, ${free} free`;
  }

  /** What a run does in the step: at the first, why it parts from the other. */
  #said(side) {
    const { difference, models, step } = this;
    if (step !== difference.step) return sentence(models[side], step);
    return spansOf(difference[side ? "b" : "a"], models[side]);
  }

  /** Draws both maps and writes both decisions; `unit` is one board pixel. */
  draw(theme, unit) {
    const { steps, step, buttons } = this;
    const at = steps.indexOf(step);
    this.title.textContent = `Step ${step}, two ways`;
    this.where.textContent = `decision that differs: ${at + 1} of ${steps.length}`;
    buttons[0].disabled = at === 0;
    buttons[1].disabled = at === steps.length - 1;
    const most = Math.max(...this.models.map(({ settings }) => settings.num_blocks));
    this.models.forEach((model, side) => {
      const marked = { request: (id) => model.request(id), laneOf: (id) => this.#laneOf(side, id) };
      const context = { model: marked, theme, selected: null };
      this.words[side].replaceChildren(...wordNodes(this.#said(side), context));
      this.canvases[side].setAttribute("aria-label", this.#label(side));
      const width = this.canvases[side].parentNode.clientWidth / unit;
      if (!width) return;
      const { blocks } = this.#frame(side);
      const grid = miniGrid(blocks.length, width, most);
      this.painters[side].begin(width, grid.height, unit, theme);
      drawMiniMap(this.painters[side], blocks, grid, (request) => this.#laneOf(side, request));
    });
  }

  /** A request has one mark in both runs, that of A. */
  #laneOf(side, id) {
    const inA = side ? this.models[0].laneOf(this.partnerOf(0, id)) : null;
    return inA ?? this.models[side].laneOf(id);
  }
}

/** " 40 blocks" in muted words, unless the run's name says so. */
function capacity(name, { num_blocks: blocks }) {
  const words = plural(blocks, "block");
  return name.includes(words) ? null : h("span", { class: "muted" }, ` ${words}`);
}
