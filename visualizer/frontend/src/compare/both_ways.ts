/**
 * A step in which two runs decide differently, in both: the decisions in words and the memory after it. It begins with
 * the step at which they part; buttons go to the others.
 */

import { Part } from "../board/part.ts";
import { patchChildren } from "../board/patch_children.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, plural } from "../drawing/html.ts";
import { drawMiniMap, miniGrid } from "../drawing/mini_map.ts";
import type { Theme } from "../drawing/palette.ts";
import { spansOf, wordNodes } from "../drawing/words_html.ts";
import { sentence } from "../model/index.ts";
import type { Model } from "../model/model.ts";
import type { ComparisonPage, Difference } from "./compare.ts";

export class BothWays extends Part<ComparisonPage> {
  difference: Difference;
  steps: number[];
  step: number;
  title = h("h2");
  where = h("span.muted", { role: "status" });
  back = this.#button("‹", "Previous decision that differs", -1);
  on = this.#button("›", "Next decision that differs", 1);
  canvases = [0, 1].map(() => h("canvas", { role: "img" }));
  painters = this.canvases.map((canvas) => new CanvasPainter(canvas));
  words = [0, 1].map((side) => h("p", { "data-side": side }));
  element: HTMLElement;

  constructor(page: ComparisonPage, difference: Difference) {
    super(page);
    const { names, differing = [] } = page.facts;
    this.difference = difference;
    this.steps = differing.includes(difference.step) ? differing : [difference.step];
    this.step = difference.step;
    const runs = page.models.map(({ settings }, side) =>
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
      h("p.turn.line", this.back, this.on, this.where),
    );
  }

  #frame(side: number) {
    const model = this.board.models[side];
    return model.frame(Math.min(Math.max(this.step, model.firstStep), model.lastStep));
  }

  #label(side: number) {
    const { unshared, shared, cached, free } = this.#frame(side).counts;
    return `KV blocks in ${this.board.facts.names[side]}: ${unshared + shared} used, ${cached} cached, ${free} free`;
  }

  #button(sign: string, title: string, by: -1 | 1) {
    const click = () => {
      this.step = this.steps[this.steps.indexOf(this.step) + by];
      for (const view of this.board.views) view.goTo(this.step);
    };
    return h("button", { title, "aria-label": title, click }, sign);
  }

  /** What a run does in the step: at the first, why it parts from the other. */
  #said(side: number) {
    const { difference, step } = this;
    const model = this.board.models[side];
    if (step !== difference.step) return sentence(model, step);
    return spansOf(difference[side ? "b" : "a"], model);
  }

  /** Draws both maps and writes both decisions; `unit` is one board pixel. */
  draw(theme: Theme, unit: number) {
    const { steps, step } = this;
    const { models } = this.board;
    const at = steps.indexOf(step);
    this.title.textContent = `Step ${step}, two ways`;
    this.where.textContent = `decision that differs: ${at + 1} of ${steps.length}`;
    this.back.disabled = at === 0;
    this.on.disabled = at === steps.length - 1;
    const most = Math.max(...models.map(({ settings }) => settings.num_blocks));
    models.forEach((model, side) => {
      const marked: Pick<Model, "request" | "laneOf"> = {
        request: (id) => model.request(id),
        laneOf: (id) => this.#laneOf(side, id ?? null),
      };
      const context = { model: marked, theme, selected: null };
      patchChildren(this.words[side], wordNodes(this.#said(side), context));
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
    const { models, partnerOf } = this.board;
    const inA = side ? models[0].laneOf(partnerOf(0, id)) : null;
    return inA ?? models[side].laneOf(id);
  }
}

/** " 40 blocks" in muted words, unless the run's name says so. */
function capacity(name: string, { num_blocks: blocks }: { num_blocks: number }) {
  const words = plural(blocks, "block");
  return name.includes(words) ? null : h("span.muted", ` ${words}`);
}
