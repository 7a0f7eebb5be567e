/**
 * The motion of a preemption: each of the victim's blocks leaves its lane for its place in the block map and, if another
 * request takes it, goes on into that request's lane. Pure functions, in board pixels from the board's corner.
 *
 * @typedef {{x: number, y: number, width: number, height: number}} Box
 * @typedef {{request: number, block: number, box: Box, inLane: Box, begin: number, end: number, arrives: boolean}} Leg
 *   a block, drawn with the request's mark, between its `box` in the map and the request's lane, in the part of
 *   the motion from `begin` to `end`; `arrives`: it goes to the lane
 *
 * @typedef {TimelineScene & {x: number, y: number}} Lanes  where the first lane and the plot's pixel 0 are
 * @typedef {{grid: BlockGrid, x: number, y: number}} BlockMap  where the grid begins
 */

/** @import { Move } from "../model/handover.js" */
/** @import { Model } from "../model/model.js" */
/** @import { BlockGrid } from "./block_grid.js" */
/** @import { TimelineScene } from "./timeline.js" */
import { laneAt } from "./lane_packing.js";

const MOST = 48; // blocks; of more, the first ones move
const HALF = 0.5;
const LEAST = 6; // px
const GAP = 2; // px

/**
 * The legs of `moves`.
 *
 * @param {Move[]} moves @param {Model} model @param {Lanes} lanes @param {BlockMap} map
 * @returns {Leg[]}
 */
export function legsOf(moves, model, lanes, map) {
  /** @param {number} request @param {number} index @param {number} count */
  const inLane = (request, index, count) =>
    laneBox(
      lanes,
      /** @type {number} */ (laneAt(lanes.packing, model.requestSpan(request).index)),
      index,
      count,
    );
  return moves.slice(0, MOST).flatMap((move) => {
    const { block, from, to, index, count } = move;
    const box = mapBox(map, block);
    const start = inLane(from, index, count);
    /** @type {Leg} */
    const leave = { request: from, block, box, inLane: start, begin: 0, end: HALF, arrives: false };
    if (to === null) return [leave];
    const gained = moves.filter((other) => other.to === to);
    const end = inLane(to, gained.indexOf(move), gained.length);
    return [leave, { request: to, block, box, inLane: end, begin: HALF, end: 1, arrives: true }];
  });
}

/** The body of a block in the map. @param {BlockMap} map @param {number} block @returns {Box} */
function mapBox({ grid, x, y }, block) {
  return {
    x: x + grid.x(block),
    y: y + grid.y(block) + grid.label,
    width: grid.cellWidth,
    height: grid.body,
  };
}

/**
 * The place of block `index` of `count` in a lane: side by side, the last one at the cursor. A lane that is scrolled out
 * of sight is at the nearest edge.
 *
 * @param {Omit<Lanes, "model" | "frame">} lanes @param {number} row @param {number} index @param {number} count
 * @returns {Box}
 */
export function laneBox({ scale, laneHeight, scroll, viewHeight, step, x, y }, row, index, count) {
  const width = Math.max(LEAST, Math.min(scale.width, 2 * LEAST));
  const middle = Math.min(Math.max(scale.middle(step), scale.left), scale.right);
  const pitch = Math.min(width + GAP, (middle - scale.left) / count);
  const height = Math.round(laneHeight * 0.6);
  const top = row * laneHeight - scroll + (laneHeight - height) / 2;
  return {
    x: x + middle - width / 2 - (count - 1 - index) * pitch,
    y: y + Math.min(Math.max(top, 0), viewHeight - height),
    width,
    height,
  };
}

/** The keyframes of a leg, for an element that lies on its box in the map. @param {Leg} leg @returns {Keyframe[]} */
export function keyframesOf({ box, inLane, begin, end, arrives }) {
  /** @param {number} length */
  const px = (length) => `calc(${length} * var(--px))`;
  const moved =
    `translate(${px(inLane.x - box.x)}, ${px(inLane.y - box.y)}) ` +
    `scale(${inLane.width / box.width}, ${inLane.height / box.height})`;
  const [first, last] = arrives ? ["none", moved] : [moved, "none"];
  return [
    { offset: 0, transform: first, opacity: Number(begin === 0) },
    { offset: begin, transform: first, opacity: 1, easing: "ease-in-out" },
    { offset: end, transform: last, opacity: 1 },
    { offset: end, transform: last, opacity: 0 },
    { offset: 1, transform: last, opacity: 0 },
  ];
}
