/**
 * A step in which two runs decide differently, in both: the decisions in words and the memory after it. It begins with
 * the step at which they part; buttons go to the others.
 */

import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, plural } from "../drawing/html.ts";
import { drawMiniMap, miniGrid } from "../drawing/mini_map.ts";
import type { Theme } from "../drawing/palette.ts";
import { spansOf, wordNodes } from "../drawing/words_html.ts";
import { sentence } from "../model/index.ts";
import type { Model } from "../model/model.ts";
import type { PartnerOf } from "./alignment.ts";
import type { Difference, Facts } from "./compare.ts";

export class BothWays {
  names: [string, string];
  difference: Difference;
  models: Model[];
  partnerOf: PartnerOf;
  steps: number[];
  step: number;
  title = h("h2");
  where = h("span.muted", { role: "status" });
  back: HTMLButtonElement;
  on: HTMLButtonElement;
  canvases: HTMLCanvasElement[];
  painters: CanvasPainter[];
  words: HTMLParagraphElement[];
  element: HTMLElement;

  /**
   * @param partnerOf finds A's request for one of B
   * @param goTo called when the reader asks for another step
   */
  constructor(
    {
      names,
      difference,
      differing = [],
    }: Pick<Facts, "names" | "differing"> & { difference: Difference },
    models: Model[],
    partnerOf: PartnerOf,
    goTo: (step: number) => void,
  ) {
    this.names = names;
    this.difference = difference;
    this.models = models;
    this.partnerOf = partnerOf;
    this.steps = differing.includes(difference.step) ? differing : [difference.step];
    this.step = difference.step;
    this.back = this.#button("‹", "Previous decision that differs", -1, goTo);
    this.on = this.#button("›", "Next decision that differs", 1, goTo);
    this.canvases = models.map(() => h("canvas", { role: "img" }));
    this.painters = this.canvases.map((canvas) => new CanvasPainter(canvas));
    this.words = models.map((_, side) => h("p", { "data-side": side }));
    const runs = models.map(({ settings }, side) =>
      h(
        "div.way",
        { "data-side": side },
        h("p.whose", h("strong", names[side]), capacity(names[side], settings)),
        this.canvases[side],
        this.words[side],
      ),
    );
    this.element = h(
      "section.ways",
      { "aria-label": "The decision in both runs" },
      this.title,
      h("div.pair", ...runs),
      h("p.turn", this.back, this.on, this.where),
    );
  }

  #frame(side: number) {
    const { models, step } = this;
    const { firstStep, lastStep } = models[side];
    return models[side].frame(Math.min(Math.max(step, firstStep), lastStep));
  }

  #label(side: number) {
    const { unshared, shared, cached, free } = this.#frame(side).counts;
    return `KV blocks in ${this.names[side]}: ${unshared + shared} used, ${cached} cached, ${free} free`;
  }

  #button(sign: string, title: string, by: -1 | 1, goTo: (step: number) => void) {
    const click = () => {
      this.step = this.steps[this.steps.indexOf(this.step) + by];
      goTo(this.step);
    };
    return h("button", { title, "aria-label": title, click }, sign);
  }

  /** What a run does in the step: at the first, why it parts from the other. */
  #said(side: number) {
    const { difference, models, step } = this;
    if (step !== difference.step) return sentence(models[side], step);
    return spansOf(difference[side ? "b" : "a"], models[side]);
  }

  /** Draws both maps and writes both decisions; `unit` is one board pixel. */
  draw(theme: Theme, unit: number) {
    const { steps, step } = this;
    const at = steps.indexOf(step);
    this.title.textContent = `Step ${step}, two ways`;
    this.where.textContent = `decision that differs: ${at + 1} of ${steps.length}`;
    this.back.disabled = at === 0;
    this.on.disabled = at === steps.length - 1;
    const most = Math.max(...this.models.map(({ settings }) => settings.num_blocks));
    this.models.forEach((model, side) => {
      const marked: Pick<Model, "request" | "laneOf"> = {
        request: (id) => model.request(id),
        laneOf: (id) => this.#laneOf(side, id ?? null),
      };
      const context = { model: marked, theme, selected: null };
      this.words[side].replaceChildren(...wordNodes(this.#said(side), context));
      this.canvases[side].setAttribute("aria-label", this.#label(side));
      const width = Number(this.canvases[side].parentElement?.clientWidth) / unit;
      if (!width) return;
      const { blocks } = this.#frame(side);
      const grid = miniGrid(blocks.length, width, most);
      this.painters[side].begin(width, grid.height, unit, theme);
      drawMiniMap(this.painters[side], blocks, grid, (request) => this.#laneOf(side, request));
    });
  }

  /** A request has one mark in both runs, that of A. */
  #laneOf(side: number, id: number | null): number | null {
    const inA = side ? this.models[0].laneOf(this.partnerOf(0, id)) : null;
    return inA ?? this.models[side].laneOf(id);
  }
}

/** " 40 blocks" in muted words, unless the run's name says so. */
function capacity(name: string, { num_blocks: blocks }: { num_blocks: number }) {
  const words = plural(blocks, "block");
  return name.includes(words) ? null : h("span.muted", ` ${words}`);
}
