/** Below the block map: rows of places outside of its blocks, each with a title and words, if the log has any. */

import type { Board } from "../board/board.ts";
import type { Line } from "../board/descriptions.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, hide, pointIn, setAttribute } from "../drawing/html.ts";
import type { Frame } from "../model/frame.ts";
import { adapterRows } from "./adapter_rows.ts";
import { groupRows } from "./group_rows.ts";
import { baseline } from "./painted.ts";
import { tierRows } from "./tier_rows.ts";

/** A row of places. Lengths are in px. */
export interface PlaceRow {
  name: string;
  words: (string | number | false | undefined)[]; // empty ones are left out
  label?: string[]; // more words, for screen readers
  height: number; // below its title
  draw: (painter: CanvasPainter, y: number, width: number) => void;
  /** Describes the place at a point below the title, or null. */
  describe: (x: number, y: number) => Line[] | null;
}

const LINE = 16;
const GAP = 8;
const LABEL = { size: 11, bold: true };

export class PlacesPanel {
  canvas = h("canvas", { role: "img", "aria-label": "Places" });
  painter = new CanvasPainter(this.canvas);
  element = h("div", { hidden: true }, this.canvas);
  rows: (PlaceRow & { y: number; said: string })[] = [];

  constructor(board: Board) {
    board.tooltip.listen(
      this.canvas,
      (event) => this.describe(pointIn(this.canvas, event, board.unit)),
      (lines) => lines,
      () => false,
    );
  }

  draw(
    frame: Frame,
    width: number,
    { unit, theme }: Pick<Board, "unit" | "theme">,
    selected: number | null,
  ) {
    let end = 0;
    const rows = [tierRows, adapterRows, groupRows].flatMap((of) => of(frame, width, selected));
    this.rows = rows.map((row) => {
      const y = end;
      end += LINE + row.height + GAP;
      return { ...row, y, said: row.words.filter(Boolean).join(", ") };
    });
    hide(this.element, !end);
    if (!end) return;
    const { painter } = this;
    painter.begin(width, end, unit, theme);
    for (const { name, said, y, draw } of this.rows) {
      const base = y + baseline(11, LINE);
      painter.text(name, 0, base, LABEL);
      const left = painter.measure(name, LABEL) + 8;
      painter.text(painter.cut(said, width - left), left, base, { color: theme.muted });
      draw(painter, y + LINE, width);
    }
    const label = this.rows.flatMap(({ name, said, label: more = [] }) => [
      `${name}: ${said}`,
      ...more,
    ]);
    setAttribute(this.canvas, "aria-label", label.join("; "));
  }

  describe([x, y]: [number, number]): Line[] | null {
    const row = this.rows.findLast((one) => one.y + LINE <= y);
    return row?.describe(x, y - row.y - LINE) ?? null;
  }
}
