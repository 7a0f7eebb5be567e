/** The orders of the waterfall's rows. */

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
