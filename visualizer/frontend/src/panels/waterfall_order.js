/** The orders of the waterfall's rows. */

/** @import { RequestTime, Waterfall } from "../model/waterfall.js" */

const NEVER = Number.MAX_VALUE;

/**
 * @type {Record<string, {words: string, key: (time: RequestTime, waterfall: Waterfall) => number}>} smallest first
 */
export const SORTINGS = {
  slowest: { words: "slowest first", key: ({ total }) => -total },
  arrival: { words: "by arrival", key: ({ life }, waterfall) => waterfall.arrived(life) ?? -1 },
  lost: { words: "by time lost", key: ({ lost }) => -lost },
  first: { words: "by first token", key: ({ ttft }) => (ttft === null ? -NEVER : -ttft) },
};

/** @param {RequestTime[]} times @param {string} order @param {Waterfall} waterfall */
export function sortTimes(times, order, waterfall) {
  const { key } = SORTINGS[order];
  return [...times].sort((a, b) => key(a, waterfall) - key(b, waterfall));
}
