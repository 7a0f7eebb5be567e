/** The events in a chunk of a cluster log's index. All replicas read the same chunks, each its own events of them. */

import { unpackerOf } from "../model/indexed_events.ts";
import type { ClusterEvent, Of } from "./cluster_lines.ts";
import { VOCABULARY } from "./vocabulary.ts";

const unpack = unpackerOf(VOCABULARY);
let last: { bytes: Uint8Array; events: ClusterEvent[] } | undefined; // the replicas ask one after the other

/** The events of an unpacked chunk. */
export function unpackChunk(bytes: Uint8Array): ClusterEvent[] {
  if (last?.bytes !== bytes) last = { bytes, events: unpack(bytes) };
  return last.events;
}

/** The events of one run of a replica in a chunk, between two places in it. A keyframe after others is no news. */
export const eventsOf = (bytes: Uint8Array, replica: string, from: number, to: number) =>
  unpackChunk(bytes)
    .slice(from, to + 1)
    .filter((event): event is Of => event.type === "of" && event.replica === replica)
    .map(({ event }) => event)
    .filter(({ type }, place) => !place || type !== "keyframe");
