/** A painter for pictures in which little is lit: only lit lanes have their mark, all others are one grey. */

import { CanvasPainter } from "../drawing/canvas_painter.ts";

export class LitPainter extends CanvasPainter {
  /** The lanes that keep their hue; null: whatever is drawn now does. */
  lit: Set<number | null> | null = null;

  #isLit(lane: number | null) {
    return !this.lit || this.lit.has(lane);
  }

  mark(x: number, y: number, width: number, height: number, lane: number | null) {
    if (this.#isLit(lane)) super.mark(x, y, width, height, lane);
    else this.fill(x, y, width, height, this.theme.rule);
  }

  hue(lane: number | null) {
    return this.#isLit(lane) ? super.hue(lane) : this.theme.rule;
  }
}
