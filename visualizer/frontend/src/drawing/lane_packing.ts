/**
 * The rows of the timeline: one per lane (`model/lanes.ts`). A request is in its lane from its first admission until it
 * ends, so running requests are always on top, in as many rows as the batch has seats and preempted requests need.
 * Requests that were never admitted are in the waiting band. Pure functions.
 *
 * A lane has 22 px. With many requests lanes are narrower, so that a class of thirty is visible at once; with
 * even more the lanes scroll.
 */

import { firstWhere } from "../model/columns.ts";
import type { Model } from "../model/model.ts";

/** the steps in which the request `index` has a row */
export type Stay = { index: number; lane: number; from: number; to: number };

export type Packing = { lanes: Stay[][]; stays: (Stay | null)[] };

const FEW_SEATS = 12; // seats that have a row even if no request ever takes them

/** The most lanes visible at once: enough for a class of thirty, or as many as fit at full height. */
export const ROOM = { crowd: 30, roomy: 18 };

/**
 * The rows of a model: `lanes`, each a list of stays `{index, lane, from, to}` ordered by time, and `stays`, the stay of
 * each request by its index. The lane of the request `pinned` comes first.
 */
export function packLanes(model: Model, pinned: number | null = null): Packing {
  const { requests, lastStep, settings, firstLane } = model;
  const seats = Math.min(settings.max_batch_size, FEW_SEATS);
  const count = Math.max(model.laneCount, seats);
  const first = (model.laneOf(pinned) ?? firstLane) - firstLane;
  const rowOf = (lane: number) => (lane === first ? 0 : lane < first ? lane + 1 : lane);
  const lanes: Stay[][] = Array.from({ length: count }, () => []);
  const stays = requests.map((span) => {
    if (span.lane === null) return null;
    const lane = rowOf(span.lane - firstLane);
    const to = Math.max(span.lanedAt, span.finished?.step ?? lastStep);
    const stay = { index: span.index, lane, from: span.lanedAt, to };
    lanes[lane].push(stay);
    return stay;
  });
  for (const lane of lanes) lane.sort((a, b) => a.from - b.from);
  return { lanes, stays };
}

/** The stay of a lane at `step`: the last that had begun by then, or its first. */
export function occupant(lane: Stay[], step: number) {
  return lane[Math.max(0, firstAfter(lane, step) - 1)];
}

/** The stay that has a lane at `step`, or null if the seat is empty. */
export function sitterAt(lane: Stay[], step: number): Stay | null {
  const stay = lane[firstAfter(lane, step) - 1];
  return stay && stay.to >= step ? stay : null;
}

/** The stays of a lane that overlap a range of steps. */
export function occupantsBetween(lane: Stay[], first: number, last: number) {
  const found = [];
  for (let at = Math.max(0, firstAfter(lane, first) - 1); at < lane.length; at += 1) {
    if (lane[at].from > last) break;
    if (lane[at].to >= first) found.push(lane[at]);
  }
  return found;
}

/** The row of a request, or null if it was never admitted. */
export function laneAt({ stays }: Packing, index: number | undefined) {
  return stays[index as number]?.lane ?? null;
}

const firstAfter = (lane: Stay[], step: number) =>
  firstWhere(lane.length, (index) => lane[index].from > step);

/** unit: CSS px per board pixel */
type Size = { narrow: boolean; unit: number };

const ROOMY = 22;
const SIZES = [ROOMY, 17, 13];
const LANES = { wide: 18, narrow: 14 }; // of full height

/** A phone has less room for lanes, as has a projector that shows a class. */
const roomy = (narrow: boolean, unit: number) => (narrow ? 19 : unit > 1 ? 20 : ROOMY);

/** `{pitch, height}` for `count` lanes, of which the first `room` should be visible. */
export function laneRows(count: number, room: number, { narrow, unit }: Size) {
  const full = roomy(narrow, unit);
  const height = full * LANES[narrow ? "narrow" : "wide"];
  const shown = Math.min(count, room, ROOM.crowd);
  const sizes = SIZES.map((size) => Math.min(size, full));
  const pitch = sizes.find((size) => shown * size <= height) ?? sizes[sizes.length - 1];
  const seen = Math.max(Math.floor(height / pitch), shown); // whole lanes
  return { pitch, height: Math.max(1, Math.min(count, seen)) * pitch };
}
