/**
 * The motion of a preemption: each of the victim's blocks leaves its lane for its place in the block map and, if another
 * request takes it, goes on into that request's lane. Pure functions, in board pixels from the board's corner.
 */

import type { Frame } from "../model/frame.ts";
import type { Model } from "../model/model.ts";
import type { BlockGrid } from "./block_grid.ts";
import { laneAt } from "./lane_packing.ts";
import type { TimelineScene } from "./timeline.ts";

/** a block that the victim of a preemption released */
interface Move {
  block: number;
  from: number; // the victim
  index: number; // place of the block in the victim's table
  count: number; // blocks in that table
  to: number | null; // the request that has the block now; null if it is free or only cached
}

/** The moves of a frame, those with a new owner first. A block that others still hold goes nowhere. */
export function movesOf(frame: Frame): Move[] {
  const moves = frame.story.preemptions.flatMap(({ request, table, seq }) =>
    table.flatMap((block, index) => {
      const { fate, to } = frame.fate(block, seq);
      return fate === "others" ? [] : [{ block, from: request, index, count: table.length, to }];
    }),
  );
  return moves.sort((a, b) => Number(a.to === null) - Number(b.to === null));
}

type Box = { x: number; y: number; width: number; height: number };

/**
 * a block, drawn with the request's mark, between its `box` in the map and the request's lane, in the part of
 * the motion from `begin` to `end`; `arrives`: it goes to the lane
 */
type Leg = {
  request: number;
  block: number;
  box: Box;
  inLane: Box;
  begin: number;
  end: number;
  arrives: boolean;
};

/** where the first lane and the plot's pixel 0 are */
type Lanes = TimelineScene & { x: number; y: number };

/** where the grid begins */
type BlockMap = { grid: BlockGrid; x: number; y: number };

const MOST = 48; // blocks; of more, the first ones move
const HALF = 0.5;
const LEAST = 6; // px
const GAP = 2; // px

/** The legs of `moves`. */
export function legsOf(moves: Move[], model: Model, lanes: Lanes, map: BlockMap): Leg[] {
  const inLane = (request: number, index: number, count: number) =>
    laneBox(lanes, laneAt(lanes.packing, model.requestSpan(request).index) as number, index, count);
  return moves.slice(0, MOST).flatMap((move) => {
    const { block, from, to, index, count } = move;
    const box = mapBox(map, block);
    const start = inLane(from, index, count);
    const leave: Leg = {
      request: from,
      block,
      box,
      inLane: start,
      begin: 0,
      end: HALF,
      arrives: false,
    };
    if (to === null) return [leave];
    const gained = moves.filter((other) => other.to === to);
    const end = inLane(to, gained.indexOf(move), gained.length);
    return [leave, { request: to, block, box, inLane: end, begin: HALF, end: 1, arrives: true }];
  });
}

/** The body of a block in the map. */
function mapBox({ grid, x, y }: BlockMap, block: number): Box {
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
 */
export function laneBox(
  { scale, laneHeight, scroll, viewHeight, step, x, y }: Omit<Lanes, "model" | "frame">,
  row: number,
  index: number,
  count: number,
): Box {
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

/** The keyframes of a leg, for an element that lies on its box in the map. */
export function keyframesOf({ box, inLane, begin, end, arrives }: Leg): Keyframe[] {
  const px = (length: number) => `calc(${length} * var(--px))`;
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
