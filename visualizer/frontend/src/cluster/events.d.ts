/**
 * The event vocabulary of a cluster log.
 * Generated from `engine/cluster/events.py`. Do not edit;
 * `pytest tests/visualizer/test_event_types.py --update-snapshots` writes it.
 */

import type { LogEvent } from "../model/events.d.ts";

export interface ClusterStarted {
  type: "cluster_started";
  schema: number;
  router: string;
  options: Record<string, any>;
  t?: Record<string, any>;
}

export interface ReplicaJoined {
  type: "replica_joined";
  replica: string;
  url?: string;
  role?: string;
  t?: Record<string, any>;
}

export interface ReplicaLeft {
  type: "replica_left";
  replica: string;
  why: string;
  t?: Record<string, any>;
}

export interface Of {
  type: "of";
  replica: string;
  seq: number;
  event: LogEvent;
}

export interface Routed {
  type: "routed";
  request: number;
  label: string;
  replica: string;
  attempt: number;
  reason: "least_cached" | "least_loaded" | "load_unbalanced" | "longest_prefix" | "lowest_cost" | "next_in_turn" | "pinned" | "prefix_on_its_way" | "random";
  prompt: number;
  hits: Record<string, number>;
  loads: Record<string, number>;
  scores: Record<string, number>;
  t?: Record<string, any>;
}

export interface Placed {
  type: "placed";
  request: number;
  replica: string;
  its_request: number;
  t?: Record<string, any>;
}

export interface RequestLost {
  type: "request_lost";
  request: number;
  replica: string;
  t?: Record<string, any>;
}

export interface Controlled {
  type: "controlled";
  what: string;
  replica?: string | null;
  t?: Record<string, any>;
}

export interface Moved {
  type: "moved";
  request: number;
  source: string;
  target: string;
  tokens: number;
  blocks: number;
  bytes: number;
  t?: Record<string, any>;
}

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
