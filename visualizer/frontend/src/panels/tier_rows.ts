/**
 * Host memory and disk, a cell for each place that a block can have there. A used place is hatched,
 * like a cached block. An arrow down marks what came in this step, an arrow up what went to the GPU.
 */

import type { CanvasPainter } from "../drawing/canvas_painter.ts";
import type { Tiers } from "../model/fold.ts";
import type { Frame } from "../model/frame.ts";
import type { PlaceRow } from "./places_panel.ts";

type Name = keyof Tiers;

const NAMES: Record<Name, string> = { host: "Host memory", disk: "Disk" };
// px
const CELL = { most: 14, least: 3, height: 12 };

/** A tier's places, and what happened to it in the step of a frame. */
function tiersOf({ state, story }: Frame, width: number) {
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

type Tier = ReturnType<typeof tiersOf>[number];

export const tierRows = (frame: Frame, width: number): PlaceRow[] =>
  tiersOf(frame, width).map((tier) => ({
    name: NAMES[tier.name],
    words: [
      `${tier.used.size.toLocaleString("en")} of ${tier.limit.toLocaleString("en")} blocks`,
      tier.came.size && `${tier.came.size} came`,
      tier.fetched.size && `${tier.fetched.size} fetched`,
      tier.gone && `${tier.gone} left`,
    ],
    height: CELL.height,
    draw: (painter, y) =>
      tier.cell < CELL.least ? drawBar(painter, tier, y, width) : drawCells(painter, tier, y),
    describe: (x, y) => {
      const slot = Math.floor(x / tier.cell);
      const isCell = tier.cell >= CELL.least && x >= 0 && slot < tier.limit && y < CELL.height;
      return isCell ? describe(tier, slot) : null;
    },
  }));

function drawCells(painter: CanvasPainter, { limit, used, came, fetched, cell }: Tier, y: number) {
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
function drawBar(painter: CanvasPainter, { limit, used }: Tier, y: number, width: number) {
  painter.frame(0, y, width, CELL.height, painter.theme.faint);
  painter.cached(0, y, (width * used.size) / limit, CELL.height, painter.theme.hatch);
}

function describe({ name, used }: Tier, slot: number) {
  const text = used.get(slot);
  const where = `${NAMES[name]}, place ${slot}`;
  if (text === undefined) return [`${where}: empty`];
  return [`${where}: a block that the GPU can fetch`, { text: text.replace(/\n/g, "⏎") }];
}
