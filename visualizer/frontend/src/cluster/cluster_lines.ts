/**
 * The lines of a cluster log, and what each may be. A cluster log has the events of the gateway and, in envelopes, those
 * of its replicas: `engine/cluster/events.py` describes them.
 */

import type { EventIn, EventsOf } from "../model/events.ts";
import { checkerOf, LogError } from "../model/log.ts";
import { SCHEMA, VOCABULARY } from "./vocabulary.ts";

type Events = EventsOf<typeof VOCABULARY>;
type Timed<E> = E extends { t?: infer T } ? Omit<E, "t"> & { t: NonNullable<T> } : E;

/** An event as it is in a log with times, which a board needs. */
export type ClusterEvent = Timed<EventIn<typeof VOCABULARY>>;
export type ReplicaJoined = Timed<Events["replica_joined"]>;
export type Of = Events["of"];
export type Routed = Timed<Events["routed"]>;

const problemOf = checkerOf(VOCABULARY);

/** Whether a log's first line says that it is a cluster's. */
export const isClusterLine = (line: string) => /^\s*\{\s*"type"\s*:\s*"cluster_started"/.test(line);

/** Cuts bytes into lines and parses them. */
export class ClusterLines {
  #decoder = new TextDecoder();
  #rest = "";
  /** The number of the last line. */
  line = 0;
  #isFirst = true;

  /**
   * Calls `take` with the event of each line that is complete. Throws a `LogError` for an invalid line.
   *
   * @param bytes cut anywhere
   */
  push(bytes: Uint8Array, take: (event: ClusterEvent, line: number) => void) {
    const lines = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split("\n");
    this.#rest = lines.pop() as string;
    for (const line of lines) this.#take(line, take);
  }

  /** Ends the log: a last line that was cut off is dropped. */
  end(take: (event: ClusterEvent, line: number) => void) {
    try {
      JSON.parse(this.#rest);
    } catch {
      return;
    }
    this.#take(this.#rest, take);
  }

  #take(text: string, take: (event: ClusterEvent, line: number) => void) {
    this.line += 1;
    if (!text.trim()) return;
    let event: any;
    let reason = null;
    try {
      event = JSON.parse(text);
    } catch {
      reason = "not valid JSON";
    }
    reason ??= this.#isFirst ? problemOfFirst(event) : null;
    reason ??= problemWith(event);
    if (reason) throw new LogError(reason, { line: this.line });
    this.#isFirst = false;
    take(event, this.line);
  }
}

/** Why an event cannot be in the log of a board, or null if it can. */
function problemWith(event: any): string | null {
  const problem = problemOf(event);
  const isUntimed = !["of", "cluster_started"].includes(event?.type) && !event?.t;
  return problem ?? (isUntimed ? `${event.type} needs t, its times` : null);
}

function problemOfFirst(event: any) {
  if (event?.type !== "cluster_started")
    return "a cluster log begins with cluster_started: is this a cluster log?";
  if (event.schema === SCHEMA) return null;
  return (
    `this cluster log has schema ${JSON.stringify(event.schema)}, and this viewer reads ${SCHEMA}: ` +
    "open it with the Underglass that wrote it"
  );
}
