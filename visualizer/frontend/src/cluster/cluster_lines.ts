/**
 * The lines of a cluster log, and what each may be. A cluster log has the events of the gateway and, in envelopes, those
 * of its replicas: `engine/cluster/events.py` describes them.
 */

import type { LogEvent } from "../model/events.ts";
import { checkerOf, LogError } from "../model/log.ts";

/** us since the gateway started */
type At = { at: number };

type ClusterStarted = {
  type: "cluster_started";
  schema: number;
  router: string;
  options: Record<string, unknown>;
};

/** cluster time is the replica's time + offset */
export type ReplicaJoined = {
  type: "replica_joined";
  replica: string;
  url?: string;
  role?: string;
  t: At & { offset: number; rtt: number };
};

type ReplicaLeft = { type: "replica_left"; replica: string; why: string; t: At };

export type Of = { type: "of"; replica: string; seq: number; event: LogEvent };

export type Routed = {
  type: "routed";
  request: number;
  label: string;
  replica: string;
  attempt: number;
  reason: string;
  prompt: number;
  hits: Record<string, number>;
  loads: Record<string, number>;
  scores: Record<string, number>;
  t: At & { us?: number };
};

type Placed = { type: "placed"; request: number; replica: string; its_request: number; t: At };

type RequestLost = { type: "request_lost"; request: number; replica: string; t: At };

export type Controlled = { type: "controlled"; what: string; replica: string | null; t: At };

type Moved = {
  type: "moved";
  request: number;
  source: string;
  target: string;
  tokens: number;
  blocks: number;
  bytes: number;
  t: At & { us?: number };
};

export type ClusterEvent =
  | ClusterStarted
  | ReplicaJoined
  | ReplicaLeft
  | Of
  | Routed
  | Placed
  | RequestLost
  | Controlled
  | Moved;

const CLUSTER_SCHEMA = 1;

const problemOf = checkerOf({
  cluster_started: "schema:i router:s options:o",
  replica_joined: "replica:s url:s? role:s? t:o",
  replica_left: "replica:s why:s t:o",
  of: "replica:s seq:i event:o",
  routed: "request:i label:s replica:s attempt:i reason:s prompt:i hits:o loads:o scores:o t:o",
  placed: "request:i replica:s its_request:i t:o",
  request_lost: "request:i replica:s t:o",
  controlled: "what:s replica:s? t:o",
  moved: "request:i source:s target:s tokens:i blocks:i bytes:i t:o",
});

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
    reason ??= problemOf(event);
    if (reason) throw new LogError(reason, { line: this.line });
    this.#isFirst = false;
    take(event, this.line);
  }
}

function problemOfFirst(event: any) {
  if (event?.type !== "cluster_started")
    return "a cluster log begins with cluster_started: is this a cluster log?";
  if (event.schema === CLUSTER_SCHEMA) return null;
  return (
    `this cluster log has schema ${JSON.stringify(event.schema)}, and this viewer reads ${CLUSTER_SCHEMA}: ` +
    "open it with the Underglass that wrote it"
  );
}
