/**
 * How high lanes are, and how many are seen at once. Pure.
 *
 * A lane has 22 px. A crowd's are narrower, so that a class of thirty is seen whole; beyond that the
 * picture stays as it is and is scrolled.
 */

import { ROOM } from "./lane_packing.js";

const ROOMY = 22;
const SIZES = [ROOMY, 17, 13];
const LANES = { wide: 18, narrow: 14 }; // of full height

/** A phone has less room for a lane, so has a projector's picture of a class. */
const roomy = (narrow, unit) => (narrow ? 19 : unit > 1 ? 20 : ROOMY);

/** `{pitch, height}` for so many lanes, of which the first `room` ought to be seen. */
export function laneRows(count, room, { narrow, unit }) {
  const full = roomy(narrow, unit);
  const height = full * LANES[narrow ? "narrow" : "wide"];
  const shown = Math.min(count, room, ROOM.crowd);
  const sizes = SIZES.map((size) => Math.min(size, full));
  const pitch = sizes.find((size) => shown * size <= height) ?? sizes.at(-1);
  const seen = Math.max(Math.floor(height / pitch), shown); // whole lanes, of however many
  return { pitch, height: Math.max(1, Math.min(count, seen)) * pitch };
}
