/**
 * The loads of a mixture of experts: how many tokens each expert of each layer has computed in this step and in all
 * steps so far. With asynchronous scheduling, that is the step that was computed while this one was scheduled.
 */

import type { Board, Panel } from "../board/board.ts";
import { Part } from "../board/part.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import {
  cellAt,
  drawExperts,
  type ExpertGrid,
  expertGrid,
  type Place,
} from "../drawing/expert_map.ts";
import { h, plural, pointIn } from "../drawing/html.ts";
import { computedWords, type Loads, loadWords, timesMean } from "../model/expert_loads.ts";
import { table, tablesBox } from "./tables.ts";

const MOST = 40; // rows of the table

export class ExpertsPanel extends Part {
  reads: Panel["reads"] = [];
  /** The highlighted cell. */
  at: Place | null = null;
  canvas = h("canvas", {
    role: "application",
    tabindex: "0",
    "aria-label": "Experts",
    click: (event) => this.lookAt(this.placeAt(event)),
    keydown: (event) => this.key(event),
  });
  painter = new CanvasPainter(this.canvas);
  words = h("span");
  told = h("p.note.told", { role: "status" });
  alternative = tablesBox();
  element = h(
    "section.experts",
    { "aria-label": "Experts" },
    h("div.swatches.flow.small", h("h2", "Experts"), this.words),
    this.canvas,
    this.told,
    this.alternative,
  );
  grid!: ExpertGrid;
  width!: number;

  constructor(board: Board) {
    super(board);
    board.tooltip.listen(
      this.canvas,
      (event) => this.placeAt(event),
      (place) => this.describe(place),
      () => false,
    );
  }

  /** The loads so far, whose shape is that of every step. */
  get sums(): Loads {
    return this.board.frame.state.expertLoads;
  }

  layout() {
    this.width = this.element.clientWidth / this.board.unit;
  }

  draw() {
    const { board, painter } = this;
    const { frame, model, theme, unit } = board;
    const { story, step } = frame;
    const { loads } = story;
    // All steps have as many layers and experts, but the first ones may have computed nothing yet.
    this.grid = expertGrid(model.expertLoads, this.width);
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
    const tokens = loads ? model.measures.tokens.at(loads.step - model.firstStep) : 0;
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

  placeAt(event: MouseEvent): Place | null {
    return cellAt(this.grid, ...pointIn(this.canvas, event, this.board.unit));
  }

  lookAt(place: Place | null) {
    this.at = place;
    this.board.render();
  }

  key(event: KeyboardEvent) {
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
      this.lookAt({ layer: layers[row], expert });
    event.preventDefault();
    event.stopPropagation();
  }
}
