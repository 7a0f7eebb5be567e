/** The printed tour: all scenes on one page. It is drawn when the page is printed, and hidden otherwise. */

import { h } from "../drawing/html.ts";
import { THEMES } from "../drawing/palette.ts";
import { LitPainter } from "./lit_painter.ts";
import { drawScene } from "./pictures.ts";
import { type Scene, spansOf, type TourHost } from "./scenes.ts";

const CARD = { width: 520, height: 380, letters: 19 };

export class TourSheet {
  element = h("div.tour-sheet");
  host: TourHost;
  scenes: Scene[];

  /** Draws for the printer until `signal` aborts. */
  constructor(host: TourHost, scenes: Scene[], signal: AbortSignal) {
    this.host = host;
    this.scenes = scenes;
    const draw = () => this.draw();
    addEventListener("beforeprint", draw, { signal });
    matchMedia("print").addEventListener("change", draw, { signal });
  }

  draw() {
    const cards = this.scenes.map((scene) => {
      const model = this.host.modelOf(scene, scene.run);
      const nameOf = (id: number) => model?.request(id)?.name ?? this.host.nameOf?.(id);
      const spans = spansOf(scene, nameOf);
      const laneOf = (id: number) => model?.laneOf(id, scene.step ?? undefined) ?? null;
      const canvas = h("canvas", { "aria-label": spans.map(({ text }) => text).join("") });
      const { width, height, letters } = CARD;
      drawScene(
        new LitPainter(canvas),
        this.host,
        scene,
        spans,
        laneOf,
        [width, height, letters],
        THEMES.light,
      );
      canvas.removeAttribute("style");
      return canvas;
    });
    this.element.replaceChildren(h("h2", this.host.title || "What happened"), ...cards);
  }
}
