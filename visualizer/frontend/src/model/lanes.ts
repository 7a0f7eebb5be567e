/**
 * Lanes: a request gets one when it is first admitted or forked and keeps it until it ends, even while preempted. The
 * lane decides the request's mark (`drawing/palette.ts`), and there are thirty marks. A request that was never
 * admitted has none. Pure functions; `engine/core/log/lanes.py` is the same in Python.
 *
 * Lanes are part of the folded state and of a keyframe, so that all viewers of a run see the same marks, however late
 * they join.
 */

/**
 * the request that has it; the step in which the last one left it; the label of its owner or, without one, of the
 * last
 */
export type Lane = [owner: number | null, last: number, label: string];

export const MARKS = 30;
const REST = 2; // steps
const NEVER = -REST;

/** The lane of a request, or -1. */
export function laneOf(lanes: Lane[], request: number) {
  return lanes.findIndex((lane) => lane[0] === request);
}

/**
 * The lanes after a request got one in `step`: the best free one by these rules, of several the smallest.
 *
 *   0  It had the label last, and no other live request has the label: in a class, a student keeps a mark.
 *   1  No other request of this step has its mark, it has rested for two steps, and it is one of the first `seats`.
 *   2  No other request of this step has its mark.
 *   3  All marks are taken. It has rested, and it is one of the first `seats`.
 *   4  Any other.
 */
export function takeLane(
  lanes: Lane[],
  { request, label, step, seats }: { request: number; label: string; step: number; seats: number },
): Lane[] {
  const marks = new Array(MARKS).fill(false); // those of this step
  let returns = label !== "";
  for (let lane = 0; lane < lanes.length; lane++) {
    const [owner, last, its] = lanes[lane];
    if (owner !== null || last === step) marks[lane % MARKS] = true;
    if (owner !== null && its === label) returns = false;
  }
  const rank = (lane: number) => {
    const [, last, its] = lanes[lane] ?? [null, NEVER, ""];
    const isDistinct = !marks[lane % MARKS];
    if (isDistinct && returns && its === label) return 0;
    const hasRested = step - last > REST && lane < seats;
    return (isDistinct ? 1 : 3) + (hasRested ? 0 : 1);
  };
  const least = returns ? 0 : 1;
  let best = lanes.length;
  let bestRank = Infinity;
  const end = lanes.length + MARKS; // any further lane has the mark of one of these
  for (let lane = 0; lane < end && bestRank > least; lane++) {
    if ((lanes[lane]?.[0] ?? null) !== null || rank(lane) >= bestRank) continue;
    best = lane;
    bestRank = rank(lane);
  }
  return withLane(lanes, best, [request, NEVER, label]);
}

/** The lanes after a request ended in `step`. */
export function leaveLane(lanes: Lane[], request: number, step: number): Lane[] {
  const lane = laneOf(lanes, request);
  return lane < 0 ? lanes : withLane(lanes, lane, [null, step, lanes[lane][2]]);
}

function withLane(lanes: Lane[], lane: number, entry: Lane): Lane[] {
  const all = lanes.slice();
  while (all.length <= lane) all.push([null, NEVER, ""]);
  all[lane] = entry;
  return all;
}
