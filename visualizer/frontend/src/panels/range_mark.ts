/** Marks the selected range on strip and lanes with two boxes, because on a long log their scales differ. */

import { h } from "../drawing/html.ts";
import { STRIP_HEIGHT } from "../drawing/strip.ts";
import type { Scale } from "../drawing/time_axis.ts";
import type { TimePanel } from "./time_panel.ts";

export class RangeMark {
  panel: TimePanel;
  boxes = [0, 1].map(() => h("div.range", { hidden: true, "aria-hidden": "true" }));

  constructor(panel: TimePanel) {
    this.panel = panel;
  }

  draw() {
    const { panel, boxes } = this;
    const { range } = panel.board.store;
    const { unit } = panel.board;
    const lanes = panel.height - STRIP_HEIGHT;
    const places: [scale: Scale, top: number, height: number][] = [
      [panel.overview, 18, STRIP_HEIGHT - 18],
      [panel.scale, STRIP_HEIGHT, lanes],
    ];
    boxes.forEach((box, i) => {
      const [scale, top, height] = places[i];
      box.hidden = true;
      if (!range) return;
      const left = Math.max(scale.left, scale.x(range[0]));
      const right = Math.min(scale.right, scale.end(range[1]));
      if (right <= left) return;
      box.hidden = false;
      const px = { left, top, width: right - left, height };
      for (const [name, value] of Object.entries(px))
        box.style.setProperty(name, `${value * unit}px`);
    });
  }
}
