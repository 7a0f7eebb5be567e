/**
 * Requests of a waterfall in groups by label, each told by two real requests: the one at its median time and the one at
 * its 99th percentile (nearest rank). Their bars add up, as bars of averages would not. Pure functions.
 */

import { groupNamer } from "./groups.ts";
import type { RequestTime } from "./waterfall.ts";

export interface TimeGroup {
  name: string;
  times: RequestTime[]; // slowest first
  /** The requests that stand for it, slowest last; one for one request. */
  told: { name: string; time: RequestTime }[];
}

/** More groups than this say less than one. */
const MOST = 8;
const SHARES = [
  { name: "p50", share: 0.5 },
  { name: "p99", share: 0.99 },
];

/** The groups of these times, slowest first, the one with the slowest request first; one of all, if labels do not make a few groups. */
export function timeGroups(times: RequestTime[]): TimeGroup[] {
  const nameOf = groupNamer(times.map(({ request }) => request));
  const groups = Map.groupBy(times, ({ request }) => nameOf(request));
  const parts = groups.size > MOST ? [["all", times] as const] : groups;
  return [...parts].map(([name, slowest]) => ({ name, times: slowest, told: toldBy(slowest) }));
}

function toldBy(slowest: RequestTime[]) {
  const told = SHARES.map(({ name, share }) => {
    const rank = Math.max(1, Math.ceil(share * slowest.length));
    return { name, time: slowest[slowest.length - rank] };
  });
  return told[0].time === told[1].time ? told.slice(1) : told;
}
