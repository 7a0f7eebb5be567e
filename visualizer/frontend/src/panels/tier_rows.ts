/**
 * Host memory and disk, a cell for each place that a block can have there. A used place is hatched, like a cached block. An
 * arrow down marks what came in this step, an arrow up what went to the GPU.
 */

import type { Tiers } from "../model/fold.ts";
import type { Frame } from "../model/frame.ts";
import type { PlaceRow } from "./places_panel.ts";

const NAMES: Record<keyof Tiers, string> = { host: "Host memory", disk: "Disk" };
const CELL = { most: 14, least: 3, height: 12 }; // px

/** The tiers that the log's settings have. */
export function tierRows({ state, story: { moves } }: Frame, width: number): PlaceRow[] {
  const { tiers, settings, blockSize } = state;
  return (["host", "disk"] as const).flatMap((tier) => {
    const limit = Math.floor(Number(settings[`${tier}_kv_tokens`] ?? 0) / blockSize);
    if (!tiers || !limit) return [];
    const name = NAMES[tier];
    const used = tiers[tier];
    const cell = Math.min(CELL.most, Math.floor(width / limit));
    const left = moves.filter(({ source }) => source === tier);
    const came = new Set(
      moves.flatMap(({ target, source, slots }) =>
        target === tier && source !== tier ? slots : [],
      ),
    );
    const fetched = new Set(left.flatMap((one) => (one.target === "gpu" ? one.blocks : [])));
    const gone = left
      .filter(({ target, reason }) => reason === "room" || target === "")
      .reduce((sum, { blocks }) => sum + blocks.length, 0);
    return {
      name,
      words: [
        `${used.size.toLocaleString("en")} of ${limit.toLocaleString("en")} blocks`,
        came.size && `${came.size} came`,
        fetched.size && `${fetched.size} fetched`,
        gone && `${gone} left`,
      ],
      height: CELL.height,
      draw(painter, y) {
        const { ink, faint, ground } = painter.theme;
        if (cell < CELL.least) {
          // Thousands of places: how many are used.
          painter.frame(0, y, width, CELL.height, faint);
          painter.cached(0, y, (width * used.size) / limit, CELL.height);
          return;
        }
        const middle = y + CELL.height / 2;
        for (let slot = 0; slot < limit; slot++) {
          const x = slot * cell;
          if (used.has(slot)) painter.cached(x, y, cell - 1, CELL.height);
          else painter.frame(x, y, cell - 1, CELL.height, faint);
          const mark = used.has(slot) && (fetched.has(slot) ? "up" : came.has(slot) && "down");
          if (!mark) continue;
          painter.fill(x, y, cell - 1, CELL.height, ground);
          painter.frame(x, y, cell - 1, CELL.height, ink);
          const at = mark === "up" ? middle - 3 : middle + 3;
          if (cell > 6) painter.tip(x + (cell - 1) / 2, at, mark, ink, Math.min(6, cell - 3));
        }
      },
      describe(x, y) {
        const slot = Math.floor(x / cell);
        if (cell < CELL.least || slot < 0 || slot >= limit || y >= CELL.height) return null;
        const text = used.get(slot);
        const where = `${name}, place ${slot}`;
        if (text === undefined) return [`${where}: empty`];
        return [`${where}: a block that the GPU can fetch`, { text: text.replace(/\n/g, "⏎") }];
      },
    };
  });
}
