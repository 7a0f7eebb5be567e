/**
 * A cluster log prepared for display: one `Model` per replica, the router's decisions, one clock. In Python,
 * `read(log).decision_rows` has the same facts. Times in microseconds since the gateway started.
 */

import { LogError } from "../model/index.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { unpackChunk } from "./cluster_chunk.ts";
import { type ClusterEvent, ClusterLines, type Of, type Routed } from "./cluster_lines.ts";
import { Replica } from "./replica.ts";

/** a decision of the router */
export interface Route {
  index: number; // its place among all decisions
  request: ClusterRequest;
  replica: string; // the chosen one
  attempt: number;
  reason: string;
  prompt: number; // number of prompt tokens
  hits: Record<string, number>; // predicted cached tokens by replica
  loads: Record<string, number>; // requests in flight by replica, as the router saw them
  scores: Record<string, number>; // what the policy compared by replica; lower is better
  at: number;
  its: number | null; // the request's id on that replica
}

export type Move = {
  source: string;
  target: string;
  tokens: number;
  blocks: number;
  at: number;
  us: number;
};

export interface ClusterRequest {
  id: number;
  name: string; // its label, numbered if another has it, or "r8"
  routes: Route[];
  places: { replica: string; its: number }[]; // where it was, in order
  losses: { replica: string; at: number }[];
  moves: Move[];
}

const FEW_SEATS = 12; // a replica's lanes without those of preempted requests
const NAME_LENGTH = 16;

export class ClusterModel {
  #lines = new ClusterLines();
  /** The number of events that came in chunks. */
  #indexed = 0;
  #byId: Map<string, Replica> = new Map();
  #requests: Map<number, ClusterRequest> = new Map();
  /** The number of each name that several requests have. */
  #names: Map<string, number> = new Map();
  #lanes = 0;
  routes: Route[] = [];
  router = "";

  /** Reads more bytes, cut anywhere. Throws a `LogError` with a line; what comes before it stays. */
  read(bytes: Uint8Array) {
    try {
      this.#lines.push(bytes, (event, line) => this.#take(event, line));
    } finally {
      this.#readReplicas();
    }
  }

  /** Reads the next chunk of an indexed log, unpacked. Throws a `LogError`; what comes before it stays. */
  readChunk(bytes: Uint8Array) {
    let events: ClusterEvent[];
    try {
      events = unpackChunk(bytes);
    } catch {
      throw new LogError("it cannot be unpacked", { seq: this.#indexed });
    }
    try {
      events.forEach((event, place) => this.#take(event, place));
    } finally {
      this.#readReplicas((replica) => replica.readChunk(bytes));
    }
    this.#indexed += events.length;
  }

  /** Ends the log. */
  end() {
    this.#lines.end((event, line) => this.#take(event, line));
    this.#readReplicas();
  }

  /** The replicas in the order in which they joined. */
  get replicas() {
    return [...this.#byId.values()];
  }

  /** The requests in the order of their first decisions. */
  get requests() {
    return [...this.#requests.values()].filter(({ routes }) => routes.length);
  }

  /** The number of lines, or of an index's events, that are read. */
  get lineCount() {
    return this.#lines.line + this.#indexed;
  }

  request(id: number | null | undefined) {
    return this.#requests.get(id as number);
  }

  replica(id: string) {
    return this.#byId.get(id);
  }

  /** The time of the first and of the last event that has one. */
  get extent() {
    const froms = this.routes.slice(0, 1).map(({ at }) => at);
    const tos = this.routes.slice(-1).map(({ at }) => at);
    for (const { axis } of this.replicas) {
      if (!axis) continue;
      froms.push(axis.from);
      tos.push(axis.to);
    }
    const from = Math.min(...froms);
    return froms.length ? { from, to: Math.max(from + 1, ...tos) } : { from: 0, to: 1000 };
  }

  /** The request on the replica of a decision. */
  spanOf({ replica, its }: Route): RequestSpan | undefined {
    return this.replica(replica)?.span(its);
  }

  /** The lane of a request on the replica of a decision; null before its admission. */
  laneOfRoute(route: Route) {
    return this.spanOf(route)?.lane ?? null;
  }

  /** The lane of a request where it was last. */
  laneOf(id: number | null) {
    const place = this.request(id)?.places.at(-1);
    return (place && this.replica(place.replica)?.span(place.its)?.lane) ?? null;
  }

  /** The prompt tokens that were found in the cache; null if the request has not been admitted. */
  delivered(route: Route) {
    const admission = this.spanOf(route)?.admissions[0];
    return admission && !admission.resumed ? admission.found : null;
  }

  /**
   * The time from a request's first decision to the first token of this one, or null. A prefill replica's token reaches
   * no client.
   */
  ttftOf({ replica: id, its, request }: Route) {
    const replica = this.replica(id);
    if (replica?.role === "prefill") return null;
    const [step] = replica?.span(its)?.tokenSteps ?? [];
    const end = step ? Number(replica?.endOf(step)) : NaN;
    return Number.isNaN(end) ? null : end - request.routes[0].at;
  }

  /** The time from its first decision to its first token, or null. */
  ttft({ routes }: ClusterRequest) {
    const known = routes.flatMap((route) => this.ttftOf(route) ?? []);
    return known.length ? Math.min(...known) : null;
  }

  /** Whether a replica ended with the request. */
  isLost({ request, replica }: Route) {
    return request.losses.some((loss) => loss.replica === replica);
  }

  #take(event: ClusterEvent, line: number) {
    switch (event.type) {
      case "cluster_started":
        this.router = event.router;
        break;
      case "replica_joined":
        this.#byId.set(event.replica, new Replica(event));
        break;
      case "replica_left":
        this.#of(event.replica, line).left = { at: event.t.at, why: event.why };
        break;
      case "of":
        this.#takeOf(event, line);
        break;
      case "routed":
        this.#of(event.replica, line);
        this.#route(event);
        break;
      case "placed": {
        const { request: id, replica, its_request: its } = event;
        const request = this.#request(id, "");
        request.places.push({ replica, its });
        const route = request.routes.findLast((one) => one.replica === replica);
        if (route && route.reason !== "pinned") route.its = its; // a connection has many requests
        this.#of(replica, line).requests.set(its, id);
        break;
      }
      case "request_lost":
        this.#request(event.request, "").losses.push({ replica: event.replica, at: event.t.at });
        break;
      case "moved": {
        const { request, source, target, tokens, blocks, t } = event;
        const move = { source, target, tokens, blocks, at: t.at, us: t.us ?? 0 };
        this.#request(request, "").moves.push(move);
      }
    }
  }

  #takeOf({ replica: id, seq, event }: Of, line: number) {
    const replica = this.#of(id, line);
    const isKnown = event.type === "keyframe" && replica.end === event.seq;
    if (isKnown) return; // it says what the events before it have said
    replica.end = seq;
    if (event.type === "run_started" || event.type === "keyframe") {
      const goesOn = event.type === "keyframe";
      const { settings } = goesOn ? event.state : event;
      replica.begin(replica.hasBegun ? replica.model.firstLane : this.#lanes, goesOn);
      const end = replica.model.firstLane + Math.min(settings.max_batch_size, FEW_SEATS);
      this.#lanes = Math.max(this.#lanes, end);
    }
    replica.add(event, line);
  }

  #of(id: string, line: number) {
    const replica = this.#byId.get(id);
    if (!replica) throw new LogError(`replica ${id} has not joined`, { line });
    return replica;
  }

  #route({ type: _, request: id, label, t, ...route }: Routed) {
    const request = this.#request(id, label);
    const { routes } = this;
    const made = { ...route, request, index: routes.length, at: t.at, its: null };
    request.routes.push(made);
    routes.push(made);
  }

  #request(id: number, label: string): ClusterRequest {
    const known = this.#requests.get(id);
    if (known) return known;
    const request: ClusterRequest = {
      id,
      name: this.#name(label.replace(/[\s\p{C}]+/gu, " ").trim() || `r${id}`),
      routes: [],
      places: [],
      losses: [],
      moves: [],
    };
    this.#requests.set(id, request);
    return request;
  }

  #name(label: string) {
    const letters = [...label];
    const base =
      letters.length > NAME_LENGTH ? `${letters.slice(0, NAME_LENGTH - 1).join("")}…` : label;
    const number = (this.#names.get(base) ?? 0) + 1;
    this.#names.set(base, number);
    return number > 1 ? `${base} ${number}` : base;
  }

  #readReplicas(read = (replica: Replica) => replica.read()) {
    for (const replica of this.replicas) {
      read(replica);
      // A request has one name in the cluster, whatever its id on the replica.
      for (const [its, id] of replica.requests) {
        const span = replica.span(its);
        const request = this.#requests.get(id);
        if (span && request) span.name = request.name;
      }
    }
  }
}
