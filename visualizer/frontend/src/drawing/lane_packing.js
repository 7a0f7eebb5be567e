/**
 * Assigns requests to lanes. Pure functions.
 *
 * The first sixteen requests have a lane each. After that, a lane is used again once its request has finished,
 * upper lanes first. The height therefore depends on the number of concurrent requests, not on the length of the
 * log. A request that arrives when all `room` visible lanes are taken waits in a lane below them and moves up
 * when it is admitted, so that running requests are at the top.
 *
 * A request keeps its lane until it finishes, except for that one move, and later events never
 * change earlier assignments, so that a live timeline does not jump.
 */

const A_LANE_EACH = 16;
const GAP = 3; // steps between two requests of a lane, for the text after the first

/** The most lanes visible at once: enough for a class of thirty, or as many as fit at full height. */
export const ROOM = { crowd: 30, roomy: 18 };

/**
 * `spans` has one `{from, to, runs}` per request: its first and last step to draw, and the step that admitted it
 * first (null: none yet). At most `batch` requests run at once. `kept` has lanes to keep, by index into `spans`:
 * the `chosen` of an earlier packing.
 *
 * Returns `lanes`, each a list of stays `{index, lane, from, to}` ordered by time; `stays`, the one or two stays
 * of each request; and `chosen`, `[lane at its arrival, lane once it runs]` of each request.
 */
export function packLanes(spans, { room = ROOM.crowd, batch = 0, kept = [] } = {}) {
  const lanes = [];
  const until = []; // by lane: the last step, including the gap, in which it is in use
  const ends = new Heap((a, b) => a.until - b.until);
  const free = [new Heap((a, b) => a - b), new Heap((a, b) => a - b)]; // visible lanes, lanes below
  const stays = spans.map(() => []);
  const chosen = [];
  const waiting = [0, 0]; // number of waiting requests in visible lanes, and below

  const settle = (index, lane, from, to) => {
    while (lanes.length <= lane) {
      free[lanes.length < room ? 0 : 1].push(lanes.length);
      until.push(-Infinity);
      lanes.push([]);
    }
    const stay = { index, lane, from, to };
    lanes[lane].push(stay);
    stays[index].push(stay);
    until[lane] = Infinity;
  };
  const leave = (lane, end) => {
    until[lane] = end;
    ends.push({ lane, until: end });
  };
  const lowest = (heap, step) => {
    while (heap.size && until[heap.top] >= step) heap.pop(); // taken again by its previous request
    return heap.size ? heap.pop() : null;
  };
  const upper = (step) => {
    if (lanes.length < Math.min(room, A_LANE_EACH)) return lanes.length;
    return lowest(free[0], step) ?? (lanes.length < room ? lanes.length : null);
  };
  const below = (step) => lowest(free[1], step) ?? Math.max(room, lanes.length);

  for (const { step, index, what } of moments(spans)) {
    while (ends.size && ends.top.until < step) {
      const { lane, until: end } = ends.pop();
      if (until[lane] === end) free[lane < room ? 0 : 1].push(lane);
    }
    const { to, runs } = spans[index];
    const before = stays[index].at(-1);
    if (what === ARRIVES) {
      // While requests wait below, enough visible lanes stay free for all that can run.
      const mayStay = runs === step || !waiting[1] || waiting[0] < room - batch;
      const above = () => (mayStay ? (upper(step) ?? justLeft(until, room, step)) : null);
      const lane = kept[index]?.[0] ?? above() ?? below(step);
      settle(index, lane, step, to);
      chosen[index] = [lane, lane];
      if (lane < room || runs === step) leave(lane, to + GAP);
      if (runs !== step) waiting[lane < room ? 0 : 1] += 1;
    } else if (before.lane < room) waiting[0] -= 1;
    else {
      waiting[1] -= 1;
      const above = () => kept[index]?.[1] ?? lowest(free[0], step) ?? justLeft(until, room, step);
      const lane = what === RUNS ? above() : null;
      if (lane == null || lane === before.lane) leave(before.lane, to + GAP);
      else {
        before.to = step - 1;
        leave(before.lane, step - 1);
        settle(index, lane, step, to);
        leave(lane, to + GAP);
        chosen[index][1] = lane;
      }
    }
  }
  return { lanes, stays, chosen };
}

const [GOES, ARRIVES, RUNS] = [0, 1, 2];

/** The events that assign lanes, in order: arrivals, first admissions, ends of requests never admitted. */
function moments(spans) {
  const all = [];
  spans.forEach(({ from, to, runs }, index) => {
    all.push({ step: from, what: ARRIVES, index });
    if (runs == null) all.push({ step: to + 1, what: GOES, index });
    else if (runs > from) all.push({ step: runs, what: RUNS, index });
  });
  return all.sort((a, b) => a.step - b.step || a.what - b.what || a.index - b.index);
}

/** A visible lane whose request has ended, although its text may still be there. */
function justLeft(until, room, step) {
  for (let lane = 0; lane < Math.min(room, until.length); lane += 1)
    if (until[lane] - GAP < step) return lane;
  return null;
}

/** The stay of a lane at `step`: the last that had begun by then, or its first. */
export function occupant(lane, step) {
  return lane[Math.max(0, firstAfter(lane, step) - 1)];
}

/** The stays of a lane that overlap a range of steps. */
export function occupantsBetween(lane, first, last) {
  const found = [];
  for (let at = Math.max(0, firstAfter(lane, first) - 1); at < lane.length; at += 1) {
    if (lane[at].from > last) break;
    if (lane[at].to >= first) found.push(lane[at]);
  }
  return found;
}

/** The lane of a request at a step: its first lane before it arrived, null if it has none. */
export function laneAt({ stays }, index, step) {
  const own = stays[index];
  return own ? (own.findLast(({ from }) => from <= step) ?? own[0]).lane : null;
}

function firstAfter(lane, step) {
  let low = 0;
  let high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane[middle].from <= step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A binary heap: the smallest element first. */
class Heap {
  #items = [];
  #order;

  constructor(order) {
    this.#order = order;
  }

  get size() {
    return this.#items.length;
  }

  get top() {
    return this.#items[0];
  }

  push(item) {
    const items = this.#items;
    let at = items.push(item) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (this.#order(items[parent], item) <= 0) break;
      items[at] = items[parent];
      at = parent;
    }
    items[at] = item;
  }

  pop() {
    const items = this.#items;
    const top = items[0];
    const item = items.pop();
    if (items.length) {
      let at = 0;
      for (;;) {
        let child = 2 * at + 1;
        if (child >= items.length) break;
        if (child + 1 < items.length && this.#order(items[child + 1], items[child]) < 0) child += 1;
        if (this.#order(item, items[child]) <= 0) break;
        items[at] = items[child];
        at = child;
      }
      items[at] = item;
    }
    return top;
  }
}
