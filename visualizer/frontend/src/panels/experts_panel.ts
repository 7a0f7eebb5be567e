/**
 * The loads of a mixture of experts: how many tokens each expert of each layer has computed in this step and in all
 * steps so far. With asynchronous scheduling, that is the step that was computed while this one was scheduled.
 */

import type { Board } from "../board/board.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import {
  cellAt,
  drawExperts,
  type ExpertGrid,
  expertGrid,
  type Place,
} from "../drawing/expert_map.ts";
import { h, plural } from "../drawing/html.ts";
import { computedWords, type Loads, loadWords, timesMean } from "../model/expert_loads.ts";
import { table, tablesBox } from "./tables.ts";

const MOST = 40; // rows of the table

export class ExpertsPanel {
  /** The highlighted cell. */
  at: Place | null = null;
  board: Board;
  canvas = h("canvas", { role: "application", tabindex: "0", "aria-label": "Experts" });
  words = h("span");
  told = h("p.note.told", { role: "status" });
  alternative = tablesBox();
  element: HTMLElement;
  painter: CanvasPainter;
  grid!: ExpertGrid;

  constructor(board: Board) {
    this.board = board;
    this.element = h(
      "section.experts",
      { "aria-label": "Experts" },
      h("div.swatches", h("h2", "Experts"), this.words),
      this.canvas,
      this.told,
      this.alternative,
    );
    this.painter = new CanvasPainter(this.canvas);
    this.listen();
  }

  /** The loads so far, whose shape is that of every step. */
  get sums(): Loads {
    return this.board.frame.state.expertLoads;
  }

  draw() {
    const { board, painter } = this;
    const { frame, model, theme, unit } = board;
    const { story, step } = frame;
    const { loads } = story;
    // All steps have as many layers and experts, but the first ones may have computed nothing yet.
    this.grid = expertGrid(model.expertLoads, this.element.clientWidth / unit);
    painter.begin(this.grid.width, this.grid.height, unit, theme);
    const title =
      loads && loads.step !== step ? `Step ${loads.step}, computed meanwhile` : "This step";
    const maps = [
      { title, loads: loads?.layers ?? null },
      { title: "So far", loads: this.sums.length ? this.sums : null },
    ];
    drawExperts(painter, this.grid, maps, this.at);
  }

  write() {
    const { frame, model } = this.board;
    const { loads } = frame.story;
    const tokens = loads ? model.measures.tokens[loads.step - model.firstStep] : 0;
    const words = loads
      ? computedWords(loads.layers, tokens) + loadWords(loads.layers)
      : "no expert computed a token";
    this.words.textContent = words;
    this.told.textContent = this.describe(this.at).join("; ") || " ";
    this.canvas.setAttribute(
      "aria-label",
      `Experts of ${plural(this.grid.layers.length, "layer")}: ${words}; arrow keys highlight an expert; a table follows`,
    );
  }

  describe(place: Place | null) {
    if (!place) return [];
    const { layer, expert } = place;
    const { loads } = this.board.frame.story;
    const words = (layers: Loads) => {
      const load = layers[layer][expert];
      return `${plural(load, "token")}, ${timesMean(layers[layer], load)} times the mean`;
    };
    const lines = [
      `expert ${expert} of layer ${layer}: ${loads ? words(loads.layers) : "0 tokens"}`,
    ];
    return this.sums.length ? [...lines, `so far ${words(this.sums)}`] : lines;
  }

  tables() {
    const { sums } = this;
    const { story, step } = this.board.frame;
    const rows = sums.flatMap((loads, layer) =>
      loads.map((all, expert) => ({
        layer,
        expert,
        all,
        load: story.loads?.layers[layer][expert] ?? 0,
      })),
    );
    rows.sort((a, b) => b.load - a.load || b.all - a.all);
    const texts = rows
      .slice(0, MOST)
      .map(({ layer, expert, load, all }) => [layer, expert, load, all].map(String));
    const heads = ["layer", "expert", "tokens", "tokens so far"];
    return [
      table(
        `Experts at step ${story.loads?.step ?? step}, the busiest first`,
        heads,
        texts,
        rows.length,
      ),
    ];
  }

  listen() {
    const { board } = this;
    const { tooltip, signal } = board;
    const placeAt = (event: MouseEvent) => {
      const box = this.canvas.getBoundingClientRect();
      const { unit } = board;
      return cellAt(this.grid, (event.clientX - box.left) / unit, (event.clientY - box.top) / unit);
    };
    const lookAt = (place: Place | null) => {
      this.at = place;
      board.render();
    };
    this.canvas.addEventListener(
      "pointermove",
      (event) => {
        const place = placeAt(event);
        tooltip.show(event, () => this.describe(place));
      },
      { signal },
    );
    this.canvas.addEventListener("pointerleave", () => tooltip.hide(), { signal });
    this.canvas.addEventListener("click", (event) => lookAt(placeAt(event)), { signal });
    this.canvas.addEventListener(
      "keydown",
      (event) => {
        const moves: Record<string, [layers: number, experts: number]> = {
          ArrowLeft: [0, -1],
          ArrowRight: [0, 1],
          ArrowUp: [-1, 0],
          ArrowDown: [1, 0],
        };
        const by = moves[event.key];
        if (!by) return;
        const { layers, experts } = this.grid;
        const row = this.at ? layers.indexOf(this.at.layer) + by[0] : 0;
        const expert = this.at ? this.at.expert + by[1] : 0;
        if (row in layers && expert >= 0 && expert < experts)
          lookAt({ layer: layers[row], expert });
        event.preventDefault();
        event.stopPropagation();
      },
      { signal },
    );
  }
}
