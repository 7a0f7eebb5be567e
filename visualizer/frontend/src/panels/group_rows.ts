/**
 * The KV cache groups of a foreign engine: layers that differ have block tables of their own. A row per group, and in
 * each row the tables of the same requests below each other, a cell per position: a mark is a block that the request
 * holds in this group, an outline a position without one, behind a sliding window. A line below the cells of a
 * request that is admitted is what the group had cached of it: the shortest decides, and is the one in ink.
 */

import { plural } from "../drawing/html.ts";
import type { Events } from "../model/events.ts";
import { tablesOf } from "../model/fold.ts";
import type { Frame } from "../model/frame.ts";
import type { PlaceRow } from "./places_panel.ts";

const CELL = { most: 12, least: 3, height: 12 }; // px
const LINE = 5; // px below the cells, for what was cached
const NAME = { size: 11, line: 14 };
const GAP = 10; // px between requests

/** The hits of the requests that the step admits: the tokens that each group had of each. */
function hitsOf({ model, story }: Frame) {
  const hits: Map<number, number[]> = new Map();
  for (const { request, seq } of story.admissions) {
    const [event] = [...model.eventsIn(seq, seq)] as Events["admitted"][];
    if (event.hits?.length) hits.set(request, event.hits);
  }
  return hits;
}

/** The groups, if the log has several. */
export function groupRows(frame: Frame, width: number, selected: number | null): PlaceRow[] {
  const { model, state } = frame;
  const names = state.source.groups ?? [];
  const hits = hitsOf(frame);
  const size = state.blockSize;
  const all = state.running
    .toSorted((a, b) => Number(b === selected) - Number(a === selected))
    .map((id) => {
      const tables = tablesOf(state.request(id));
      const had = hits.get(id);
      const longest = Math.max(
        ...tables.map(({ length }) => length),
        ...(had ?? []).map((one) => one / size),
      );
      return { id, name: `${model.request(id)?.name}`, tables, longest, had };
    });
  // As many requests as fit, with cells as large as fits.
  const cellOf = (some: typeof all) =>
    (width + GAP - some.length * GAP) / some.reduce((sum, { longest }) => sum + longest, 0);
  let shown = all;
  while (shown.length > 1 && cellOf(shown) < CELL.least) shown = shown.slice(0, -1);
  const cell = Math.min(CELL.most, cellOf(shown));
  let x = 0;
  const placed = shown.map((one) => {
    const left = x;
    x += one.longest * cell + GAP;
    return { ...one, left };
  });
  return names.map((name, group) => {
    const held = all.map(({ tables }) => (tables[group] ?? []).filter((block) => block >= 0));
    const broken = all.flatMap(({ name: who, had = [] }) =>
      had[group] === Math.min(...had) && had[group] < Math.max(...had)
        ? [`broke ${who}'s hit: ${had[group]} of ${plural(Math.max(...had), "token")}`]
        : [],
    );
    const head = group ? 0 : NAME.line;
    return {
      name: name.replace(/^the | \(.*/g, "").replace(/^./, (first) => first.toUpperCase()),
      words: [
        ...broken,
        plural(new Set(held.flat()).size, "block"),
        /\((.*)\)/.exec(name)?.[1],
        !group &&
          shown.length < all.length &&
          `${shown.length} of ${all.length} requests are drawn`,
      ],
      label: all.map((one, i) => `${one.name}: ${plural(held[i].length, "block")}`),
      height: head + CELL.height + LINE,
      draw(painter, top) {
        const { faint, ink, muted } = painter.theme;
        for (const { id, name: who, tables, longest, left, had } of placed) {
          const y = top + head;
          if (head)
            painter.text(painter.cut(who, longest * cell + GAP - 2, NAME), left, top + 10, NAME);
          const lane = model.laneOf(id, frame.step);
          const inset = cell > 5 ? 1 : 0.5;
          for (const [index, block] of (tables[group] ?? []).entries()) {
            const box = [left + index * cell, y, cell - inset, CELL.height] as const;
            if (block >= 0) painter.mark(...box, lane);
            else painter.frame(...box, faint);
          }
          if (!had) continue;
          const length = (had[group] / size) * cell;
          const isLeast = had[group] === Math.min(...had);
          painter.fill(
            left,
            y + CELL.height + 2,
            Math.max(2, length - inset),
            2,
            isLeast ? ink : muted,
          );
        }
      },
      describe(pointer) {
        const one = placed.findLast(({ left }) => left <= pointer);
        const index = Math.floor((pointer - (one?.left ?? 0)) / cell);
        const block = one?.tables[group]?.[index];
        if (!one || block === undefined) return null;
        const isState = /linear/.test(names[group]); // a block of them has a state, not some tokens
        const tokens = isState ? "" : `, tokens ${index * size} to ${(index + 1) * size - 1}`;
        const what = block < 0 ? "no block" : `block ${block}`;
        const had = one.had && `${names[group]} had ${plural(one.had[group], "token")} cached`;
        return [`${one.name}${tokens}: ${what} of ${names[group]}`, ...(had ? [had] : [])];
      },
    };
  });
}
