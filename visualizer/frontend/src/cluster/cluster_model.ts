/**
 * A cluster log prepared for display: a `Model` per run of a replica, the router's decisions, one clock. In Python,
 * `read(log).decision_rows` has the same facts. Times in microseconds since the gateway started.
 */

import { LogError } from "../model/index.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { unpackChunk } from "./cluster_chunk.ts";
import { type ClusterEvent, ClusterLines, type Of, type Routed } from "./cluster_lines.ts";
import { Replica, type Run } from "./replica.ts";

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
  terms: Record<string, Record<string, number>>; // the summands of each score, by name
  ties: Record<string, Record<string, number>>; // what it compared next, of those with the best score; larger is better
  output: number; // the number of tokens that the client had already
  at: number;
  run: Run | null; // where the request was placed
  its: number | null; // its id there
  isLost: boolean; // the request ended with an error there
}

/** a step on a request's way that failed */
export interface Failure {
  request: number;
  replica: string; // "": none was there
  hop: string;
  noticed: string;
  remedy: string;
  why: string;
  at: number;
  us: number | null; // how long the gateway had waited
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
  places: { replica: string; run: Run; its: number }[]; // where it was, in order
  failures: Failure[];
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
  /** When the gateway did last what it logged. */
  #now = 0;
  routes: Route[] = [];
  /** The failures of all requests. */
  failures: Failure[] = [];
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
      this.#readReplicas((run) => run.readChunk(bytes));
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
    for (const { axis } of this.replicas.flatMap(({ runs }) => runs)) {
      if (!axis) continue;
      froms.push(axis.from);
      tos.push(axis.to);
    }
    if (froms.length)
      for (const { stays, ejections } of this.replicas)
        for (const { from, to } of [...stays.filter((one) => one.to !== null), ...ejections])
          tos.push(to ?? from);
    const from = Math.min(...froms);
    return froms.length ? { from, to: Math.max(from + 1, ...tos) } : { from: 0, to: 1000 };
  }

  /** The run of a decision's replica that admitted the request, or the one in which it was placed. */
  runOf({ run, its }: Route): Run | null {
    const isAdmitted = (part: Run) =>
      part.span(its)?.admissions.some(({ resumed }) => !resumed) ?? false;
    return run?.rest.find(isAdmitted) ?? run;
  }

  /** The request on the replica of a decision. */
  spanOf(route: Route): RequestSpan | undefined {
    return this.runOf(route)?.span(route.its);
  }

  /** The lane of a request on the replica of a decision; null before its admission. */
  laneOfRoute(route: Route) {
    return this.spanOf(route)?.lane ?? null;
  }

  /** The lane of a request where it was last. */
  laneOf(id: number | null) {
    const place = this.request(id)?.places.at(-1);
    return place?.run.span(place.its)?.lane ?? null;
  }

  /** The prompt tokens that were found in the cache; null if the request has not been admitted. */
  delivered(route: Route) {
    const admission = this.spanOf(route)?.admissions[0];
    return admission && !admission.resumed ? admission.found : null;
  }

  /** When the replica of a decision computed its first token for the request; null if the log does not say. */
  firstTokenOf({ run, its, output }: Route) {
    for (const part of run?.rest ?? []) {
      const steps = part.span(its)?.tokenSteps ?? [];
      // Tokens of another replica, and those from before a gap, have no step here.
      const first = steps.findIndex((step) => step > 0);
      if (first < 0 && steps.length <= output) continue;
      const end = first >= 0 && first <= output ? part.endOf(steps[first]) : NaN;
      return Number.isNaN(end) ? null : end;
    }
    return null;
  }

  /**
   * The time from a request's first decision to the first token of this one, or null. A client gets no token of a replica
   * if another one begins the answer anew, and one that has output has had its first token.
   */
  ttftOf(route: Route) {
    const { routes } = route.request;
    const next = routes[routes.indexOf(route) + 1];
    if (route.output || (next && !next.output)) return null;
    const end = this.firstTokenOf(route);
    return end === null ? null : end - routes[0].at;
  }

  /** The time from its first decision to its first token, or null. */
  ttft({ routes }: ClusterRequest) {
    const known = routes.flatMap((route) => this.ttftOf(route) ?? []);
    return known.length ? Math.min(...known) : null;
  }

  #take(event: ClusterEvent, line: number) {
    if (event.type !== "of") this.#now = event.t?.at ?? this.#now;
    switch (event.type) {
      case "cluster_started":
        this.router = event.router;
        break;
      case "replica_joined": {
        const replica = this.#byId.get(event.replica) ?? new Replica(event.replica);
        this.#byId.set(event.replica, replica);
        replica.join(event);
        break;
      }
      case "replica_left":
        this.#of(event.replica, line).leave(event.t.at, event.why);
        break;
      case "replica_ejected":
        this.#of(event.replica, line).eject(event.t.at, event.why);
        break;
      case "replica_returned":
        this.#of(event.replica, line).readmit(event.t.at, event.half_open ?? false);
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
        const of = this.#of(replica, line);
        const run = of.latest ?? this.#begin(of, false); // its first event is on its way
        const request = this.#request(id, "");
        request.places.push({ replica, run, its });
        const route = request.routes.at(-1);
        // A connection has many requests, and so may a body with several prompts: the first one counts.
        if (route?.replica === replica && route.reason !== "pinned" && route.its === null)
          Object.assign(route, { run, its });
        run.requests.set(its, id);
        break;
      }
      case "hop_failed": {
        const { type: _, t, ...failure } = event;
        const made = { ...failure, at: t.at, us: t.us ?? null };
        const request = this.#request(event.request, "");
        request.failures.push(made);
        this.failures.push(made);
        const place = request.places.findLast(({ replica }) => replica === event.replica);
        if (event.noticed === "error" && place)
          place.run.errors.push({ its: place.its, at: t.at, why: event.why.split(",")[0] });
        break;
      }
      case "request_lost": {
        const { routes, losses } = this.#request(event.request, "");
        losses.push({ replica: event.replica, at: event.t.at });
        const last = routes.at(-1);
        if (last) last.isLost = true;
        break;
      }
      case "moved": {
        const { request, source, target, tokens, blocks, t } = event;
        const move = { source, target, tokens, blocks, at: t.at, us: t.us ?? 0 };
        this.#request(request, "").moves.push(move);
      }
    }
  }

  #takeOf({ replica: id, seq, event }: Of, line: number) {
    const replica = this.#of(id, line);
    const { latest } = replica;
    if (event.type === "run_started" || event.type === "keyframe") {
      const isKeyframe = event.type === "keyframe";
      const isSame = isKeyframe && latest?.engine === replica.engine;
      if (isSame && latest.end === seq) return; // it says what the events before it have said
      const { settings } = isKeyframe ? event.state : event;
      // An engine that was started again counts from 0.
      const continues = isSame && latest.end !== null && seq > latest.end;
      if (latest?.end !== null) this.#begin(replica, continues);
      const end = replica.firstLane + Math.min(settings.max_batch_size, FEW_SEATS);
      this.#lanes = Math.max(this.#lanes, end);
    }
    const run = replica.latest;
    if (run?.offset !== replica.offset) run?.align(replica.offset);
    run?.add(event, line, seq);
  }

  #begin(replica: Replica, continues: boolean) {
    if (!replica.latest) replica.firstLane = this.#lanes;
    return replica.begin(this.#now, continues);
  }

  #of(id: string, line: number) {
    const replica = this.#byId.get(id);
    if (!replica) throw new LogError(`replica ${id} has not joined`, { line });
    return replica;
  }

  #route({ type: _, request: id, label, t, terms = {}, ties = {}, output = 0, ...route }: Routed) {
    const request = this.#request(id, label);
    const { routes } = this;
    const made: Route = {
      ...route,
      terms,
      ties,
      output,
      request,
      index: routes.length,
      at: t.at,
      run: null,
      its: null,
      isLost: false,
    };
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
      failures: [],
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

  #readReplicas(read = (run: Run) => run.read()) {
    for (const run of this.replicas.flatMap(({ runs }) => runs)) {
      read(run);
      // A request has one name in the cluster, whatever its id on the replica.
      for (const [its, id] of run.requests) {
        const span = run.span(its);
        const request = this.#requests.get(id);
        if (span && request) span.name = request.name;
      }
    }
  }
}
