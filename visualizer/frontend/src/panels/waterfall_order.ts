/** The rows of the waterfall: groups of requests, or each request in an order. */

import { type TimeGroup, timeGroups } from "../model/time_groups.ts";
import type { RequestTime, Waterfall } from "../model/waterfall.ts";

const NEVER = Number.MAX_VALUE;

/** smallest first */
export const SORTINGS: Record<
  string,
  { words: string; key: (time: RequestTime, waterfall: Waterfall) => number }
> = {
  slowest: { words: "slowest first", key: ({ total }) => -total },
  arrival: {
    words: "by arrival",
    key: ({ request }, waterfall) => waterfall.arrived(request) ?? -1,
  },
  lost: { words: "by time lost", key: ({ lost }) => -lost },
  first: { words: "by first token", key: ({ ttft }) => (ttft === null ? -NEVER : -ttft) },
};

export function sortTimes(times: RequestTime[], order: string, waterfall: Waterfall) {
  const { key } = SORTINGS[order];
  return [...times].sort((a, b) => key(a, waterfall) - key(b, waterfall));
}

/** a request's bar, which `told` says stands for a group ("p99"); or a group's line, without a bar */
export type WaterfallRow =
  | { time: RequestTime; told?: string; group?: undefined }
  | { group: TimeGroup; time?: undefined };

/** A line for each group, and below it the requests that stand for it or, if it is open, all of them. */
export function groupRows(times: RequestTime[], open: Set<string>): WaterfallRow[] {
  return timeGroups(times).flatMap((group) => [
    { group },
    ...(open.has(group.name)
      ? group.times.map((time) => ({ time }))
      : group.told.map(({ name, time }) => ({ time, told: name }))),
  ]);
}
