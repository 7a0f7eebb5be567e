/**
 * The lines of a cluster log, and what each may be. A cluster log has the events of the gateway and, in envelopes, those
 * of its replicas: `engine/cluster/events.py` describes them.
 *
 * @typedef {{at: number}} At  us since the gateway started
 * @typedef {{type: "cluster_started", schema: number, router: string, options: Record<string, unknown>}} ClusterStarted
 * @typedef {{type: "replica_joined", replica: string, url?: string, role?: string,
 *   t: At & {offset: number, rtt: number}}} ReplicaJoined  cluster time is the replica's time + offset
 * @typedef {{type: "replica_left", replica: string, why: string, t: At}} ReplicaLeft
 * @typedef {{type: "of", replica: string, seq: number, event: LogEvent}} Of
 * @typedef {{type: "routed", request: number, label: string, replica: string, attempt: number, reason: string,
 *   prompt: number, hits: Record<string, number>, loads: Record<string, number>, scores: Record<string, number>,
 *   t: At & {us?: number}}} Routed
 * @typedef {{type: "placed", request: number, replica: string, its_request: number, t: At}} Placed
 * @typedef {{type: "request_lost", request: number, replica: string, t: At}} RequestLost
 * @typedef {{type: "controlled", what: string, replica: string | null, t: At}} Controlled
 * @typedef {{type: "moved", request: number, source: string, target: string, tokens: number, blocks: number,
 *   bytes: number, t: At & {us?: number}}} Moved
 * @typedef {ClusterStarted | ReplicaJoined | ReplicaLeft | Of | Routed | Placed | RequestLost | Controlled
 *   | Moved} ClusterEvent
 */

/** @import { LogEvent } from "../model/events.js" */
import { checkerOf, LogError } from "../model/log.js";

export const CLUSTER_SCHEMA = 1;

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

/** Whether a log's first line says that it is a cluster's. @param {string} line */
export const isClusterLine = (line) => /^\s*\{\s*"type"\s*:\s*"cluster_started"/.test(line);

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
   * @param {Uint8Array} bytes  cut anywhere @param {(event: ClusterEvent, line: number) => void} take
   */
  push(bytes, take) {
    const lines = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split("\n");
    this.#rest = /** @type {string} */ (lines.pop());
    for (const line of lines) this.#take(line, take);
  }

  /** Ends the log: a last line that was cut off is dropped. @param {(event: ClusterEvent, line: number) => void} take */
  end(take) {
    try {
      JSON.parse(this.#rest);
    } catch {
      return;
    }
    this.#take(this.#rest, take);
  }

  /** @param {string} text @param {(event: ClusterEvent, line: number) => void} take */
  #take(text, take) {
    this.line += 1;
    if (!text.trim()) return;
    let event;
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

/** @param {any} event */
function problemOfFirst(event) {
  if (event?.type !== "cluster_started")
    return "a cluster log begins with cluster_started: is this a cluster log?";
  if (event.schema === CLUSTER_SCHEMA) return null;
  return (
    `this cluster log has schema ${JSON.stringify(event.schema)}, and this viewer reads ${CLUSTER_SCHEMA}: ` +
    "open it with the Underglass that wrote it"
  );
}
