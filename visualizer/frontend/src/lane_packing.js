/**
 * Which request is drawn in which lane. Pure.
 *
 * A few requests have a lane each. With more of them a lane is used again once its request has
 * finished, so that the picture is as high as the crowd at its largest, not as the log is long.
 */

const A_LANE_EACH = 16;

/**
 * `spans` has one `{from, to}` per request, in order of arrival: the first and last step at which
 * there is something of it to draw. Returns `lanes`, each a list of indexes into `spans` by time, and
 * `laneOf`, the lane of each index.
 */
export function packLanes(spans, gap = 3) {
  const lanes = [];
  const laneOf = new Array(spans.length);
  if (spans.length <= A_LANE_EACH) {
    spans.forEach((_, index) => {
      laneOf[index] = lanes.push([index]) - 1;
    });
    return { lanes, laneOf };
  }
  const free = new Heap((a, b) => a - b);
  const busy = new Heap((a, b) => a.until - b.until);
  const order = spans
    .map((_, index) => index)
    .sort((a, b) => spans[a].from - spans[b].from || a - b);
  for (const index of order) {
    while (busy.size && busy.top.until < spans[index].from) free.push(busy.pop().lane);
    const lane = free.size ? free.pop() : lanes.push([]) - 1;
    lanes[lane].push(index);
    laneOf[index] = lane;
    busy.push({ lane, until: spans[index].to + gap });
  }
  return { lanes, laneOf };
}

/** The request a lane is about at `step`: the last that began by then, else its first. */
export function occupant(lane, spans, step) {
  let low = 0;
  let high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[lane[middle]].from <= step) low = middle + 1;
    else high = middle;
  }
  return lane[Math.max(0, low - 1)];
}

/** The requests of a lane that have something to draw between two steps. */
export function occupantsBetween(lane, spans, first, last) {
  const found = [];
  for (let at = lane.indexOf(occupant(lane, spans, first)); at < lane.length; at += 1) {
    if (spans[lane[at]].from > last) break;
    if (spans[lane[at]].to >= first) found.push(lane[at]);
  }
  return found;
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
