/**
 * The height of lanes and how many are visible at once. Pure functions.
 *
 * A lane has 22 px. With many requests lanes are narrower, so that a class of thirty is visible at once; with
 * even more the lanes scroll.
 */

import { ROOM } from "./lane_packing.ts";

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
