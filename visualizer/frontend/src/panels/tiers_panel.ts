/**
 * Below the block map: host memory and disk, a cell for each place that a block can have there. A used place is hatched,
 * like a cached block. An arrow down marks what came in this step, an arrow up what went to the GPU.
 */

import type { Board } from "../board/board.ts";
import type { Line } from "../board/descriptions.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, hide, pointIn, setAttribute } from "../drawing/html.ts";
import type { Tiers } from "../model/fold.ts";
import type { Frame } from "../model/frame.ts";
import { baseline } from "./painted.ts";

type Name = keyof Tiers;

const NAMES: Record<Name, string> = { host: "Host memory", disk: "Disk" };
// px
const LINE = 16;
const CELL = { most: 14, least: 3, height: 12 };
const ROW = LINE + CELL.height + 8;
const LABEL = { size: 11, bold: true };
const WORDS = { size: 11 };

/** A tier's places, and what happened to it in the step of a frame. */
function rowsOf({ state, story }: Frame, width: number) {
  const { tiers, settings, blockSize } = state;
  return (["host", "disk"] as const).flatMap((name) => {
    const limit = Math.floor(Number(settings[`${name}_kv_tokens`] ?? 0) / blockSize);
    if (!tiers || !limit) return [];
    const moves = story.moves;
    const came = new Set(
      moves.flatMap(({ target, source, slots }) =>
        target === name && source !== name ? slots : [],
      ),
    );
    const fetched = new Set(
      moves.flatMap(({ target, source, blocks }) =>
        source === name && target === "gpu" ? blocks : [],
      ),
    );
    const left = moves.filter(
      ({ source, target, reason }) => source === name && (reason === "room" || target === ""),
    );
    const gone = left.reduce((sum, { blocks }) => sum + blocks.length, 0);

    return [
      {
        name,
        limit,
        used: tiers[name],
        came,
        fetched,
        gone,
        cell: Math.min(CELL.most, Math.floor(width / limit)),
      },
    ];
  });
}

type Row = ReturnType<typeof rowsOf>[number];

const wordsOf = ({ used, limit, came, fetched, gone }: Row) =>
  [
    `${used.size.toLocaleString("en")} of ${limit.toLocaleString("en")} blocks`,
    came.size && `${came.size} came`,
    fetched.size && `${fetched.size} fetched`,
    gone && `${gone} left`,
  ]
    .filter(Boolean)
    .join(", ");

export class TiersPanel {
  canvas = h("canvas", { role: "img", "aria-label": "Host memory and disk" });
  painter = new CanvasPainter(this.canvas);
  element = h("div.tiers", { hidden: true }, this.canvas);
  rows: Row[] = [];

  constructor(board: Board) {
    board.tooltip.listen(
      this.canvas,
      (event) => this.placeAt(pointIn(this.canvas, event, board.unit)),
      (place) => this.describe(place),
      () => false,
    );
  }

  draw(frame: Frame, width: number, { unit, theme }: Pick<Board, "unit" | "theme">) {
    const rows = rowsOf(frame, width);
    this.rows = rows;
    hide(this.element, !rows.length);
    if (!rows.length) return;
    const { painter } = this;
    painter.begin(width, rows.length * ROW, unit, theme);
    rows.forEach((row, index) => {
      const y = index * ROW;
      const base = y + baseline(11, LINE);
      painter.text(NAMES[row.name], 0, base, LABEL);
      const left = painter.measure(NAMES[row.name], LABEL) + 8;
      const words = painter.cut(wordsOf(row), width - left, WORDS);
      painter.text(words, left, base, { ...WORDS, color: theme.muted });
      if (row.cell < CELL.least) this.#drawBar(row, y + LINE, width);
      else this.#drawCells(row, y + LINE);
    });
    const label = rows.map((row) => `${NAMES[row.name]}: ${wordsOf(row)}`).join("; ");
    setAttribute(this.canvas, "aria-label", label);
  }

  #drawCells({ limit, used, came, fetched, cell }: Row, y: number) {
    const { painter } = this;
    const { ink, faint, hatch } = painter.theme;
    const width = cell - 1;
    const middle = y + CELL.height / 2;
    for (let slot = 0; slot < limit; slot++) {
      const x = slot * cell;
      if (used.has(slot)) painter.cached(x, y, width, CELL.height, hatch);
      else painter.frame(x, y, width, CELL.height, faint);
      const mark = used.has(slot) && (fetched.has(slot) ? "up" : came.has(slot) ? "down" : null);
      if (!mark) continue;
      const at = mark === "up" ? middle - 3 : middle + 3;
      painter.fill(x, y, width, CELL.height, painter.theme.ground);
      painter.frame(x, y, width, CELL.height, ink);
      if (width >= 6) painter.tip(x + width / 2, at, mark, ink, Math.min(6, width - 2));
    }
  }

  /** Thousands of places: how many are used. */
  #drawBar({ limit, used }: Row, y: number, width: number) {
    const { painter } = this;
    painter.frame(0, y, width, CELL.height, painter.theme.faint);
    painter.cached(0, y, (width * used.size) / limit, CELL.height, painter.theme.hatch);
  }

  placeAt([x, y]: [number, number]): [Name, number] | null {
    const row = this.rows[Math.floor(y / ROW)];
    const slot = row && Math.floor(x / row.cell);
    const isInside = row && row.cell >= CELL.least && slot >= 0 && slot < row.limit;
    return isInside ? [row.name, slot] : null;
  }

  describe([name, slot]: [Name, number]): Line[] {
    const row = this.rows.find((one) => one.name === name);
    const text = row?.used.get(slot);
    const where = `${NAMES[name]}, place ${slot}`;
    if (text === undefined) return [`${where}: empty`];
    return [`${where}: a block that the GPU can fetch`, { text: text.replace(/\n/g, "⏎") }];
  }
}
