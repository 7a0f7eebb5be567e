/**
 * The event vocabulary.
 * Generated from `engine/core/log/vocabulary.py`. Do not edit;
 * `pytest tests/visualizer/test_event_types.py --update-snapshots` writes it.
 */

export type ScheduledRow = [request: number, start: number, count: number, drafts?: number[]];

export type Blocked = [request: number, reason: "after_preemption" | "batch_full" | "no_free_blocks" | "policy" | "reserved_blocks" | "static_batch" | "token_budget" | "whole_sequence", behind: number, need: number, have: number];

export type TokenRow = [request: number, ids: number[], texts: string[], accepted?: number, forced?: number, allowed?: number[]];

export interface RequestState {
  id: number;
  root: number;
  sample: number;
  prompt_length: number;
  tokens: number[];
  num_computed_tokens: number;
  block_table: number[];
  last_node: number;
  num_seqs: number;
  preemptions: number;
  texts: string[];
  label: string;
  priority: number;
  max_tokens: number;
  sampling: Record<string, any>;
}

export interface NodeRecord {
  id: number;
  parent: number;
  tokens?: number[];
  blocks?: number[];
  copies?: number[];
  last?: number;
  lock_ref?: number;
  texts?: string[];
  source?: string;
  hash?: string | null;
  media?: string[] | null;
}

export interface HoldState {
  id: number;
  block_table: number[];
  last_node: number;
  label?: string;
}

export interface KeyframeState {
  window_pages?: number[] | null;
  seq: number;
  step: number;
  tick: number;
  paused: boolean;
  waiting: number[];
  running: number[];
  plan: ScheduledRow[];
  in_flight: [number, ScheduledRow[]][];
  free: number[];
  queue: number[];
  refs: number[];
  requests: RequestState[];
  nodes: NodeRecord[];
  holds: HoldState[];
  settings: Record<string, any>;
  classes: Record<string, string>;
  source?: Record<string, any>;
  reported?: StepReported | null;
  expert_loads?: number[][];
  lanes?: [number | null, number, string][];
  schema: number;
}

export interface RunStarted {
  type: "run_started";
  schema: number;
  settings: Record<string, any>;
  classes: Record<string, string>;
  model: Record<string, any>;
  tokenizer: Record<string, any>;
  clock: string;
  source?: Record<string, any>;
  t?: Record<string, any>;
}

export interface RequestArrived {
  type: "request_arrived";
  request: number;
  prompt: number[];
  texts: string[];
  label: string;
  max_tokens: number;
  n: number;
  priority: number;
  sampling: Record<string, any>;
  hashes?: string[];
  t?: Record<string, any>;
}

export interface StepStarted {
  type: "step_started";
  step: number;
}

export interface Admitted {
  type: "admitted";
  request: number;
  node: number;
  blocks: number[];
  resumed: boolean;
  key: number[];
}

export interface BlocksAllocated {
  type: "blocks_allocated";
  request: number;
  blocks: number[];
}

export interface BlockCopied {
  type: "block_copied";
  request: number;
  index: number;
  source: number;
  block: number;
}

export interface Preempted {
  type: "preempted";
  request: number;
  needed_by: number;
  refunded: number;
}

export interface RadixEvicted {
  type: "radix_evicted";
  node: number;
  needed_by: number;
  reason: "adopted" | "cleared" | "room";
}

export interface StepScheduled {
  type: "step_scheduled";
  rows: ScheduledRow[];
  skipped: [number, string][];
  blocked?: Blocked | null;
}

export interface Forked {
  type: "forked";
  request: number;
  parent: number;
  sample: number;
}

export interface StepFinished {
  type: "step_finished";
  tokens: TokenRow[];
  step: number;
  wasted?: number[];
  expert_loads?: number[][];
  draft_error?: string;
  t?: Record<string, any>;
}

export interface BlocksTrimmed {
  type: "blocks_trimmed";
  request: number;
  keep: number;
}

export interface RadixSplit {
  type: "radix_split";
  node: number;
  at: number;
  upper: number;
}

export interface RadixJoined {
  type: "radix_joined";
  request: number;
  node: number;
  blocks: number[];
}

export interface RadixInserted {
  type: "radix_inserted";
  request: number;
  node: number;
  parent: number;
  blocks: number[];
}

export interface RadixExtended {
  type: "radix_extended";
  request: number;
  node: number;
  blocks: number[];
}

export interface BlocksStored {
  type: "blocks_stored";
  request: number;
  parent: number;
  nodes: number[];
  blocks: number[];
}

export interface BlockEvicted {
  type: "block_evicted";
  node: number;
  block: number;
  needed_by: number;
  reason: "adopted" | "cleared" | "room";
}

export interface BlockWithdrawn {
  type: "block_withdrawn";
  request: number;
  node: number;
  block: number;
}

export interface WindowPagesEvicted {
  type: "window_pages_evicted";
  blocks: number[];
  needed_by: number;
}

export interface RequestFinished {
  type: "request_finished";
  request: number;
  reason: "abort" | "error" | "length" | "stop";
  message?: string;
  matched?: string;
}

export interface PrefixHeld {
  type: "prefix_held";
  hold: number;
  node: number;
  blocks: number[];
  label: string;
}

export interface PrefixReleased {
  type: "prefix_released";
  hold: number;
  reason: "released" | "room";
}

export interface PrefixAdopted {
  type: "prefix_adopted";
  parent: number;
  nodes: number[];
  blocks: number[];
  tokens: number[];
  texts: string[];
  source: string;
  window_pages?: number;
  t?: Record<string, any>;
}

export interface EnginePaused {
  type: "engine_paused";
  t?: Record<string, any>;
}

export interface EngineResumed {
  type: "engine_resumed";
  t?: Record<string, any>;
}

export interface EventsMissing {
  type: "events_missing";
  count: number;
  message: string;
  t?: Record<string, any>;
}

export interface BlocksReported {
  type: "blocks_reported";
  parent: number;
  nodes: number[];
  blocks: number[];
  tokens: number[];
  hashes: string[];
  medium: string;
}

export interface StepReported {
  type: "step_reported";
  prefills: number;
  prefill_tokens: number;
  decodes: number;
  waiting: number;
  waiting_tokens: number;
}

export interface Keyframe {
  type: "keyframe";
  seq: number;
  state: KeyframeState;
}

export type LogEvent =
  | RunStarted
  | RequestArrived
  | StepStarted
  | Admitted
  | BlocksAllocated
  | BlockCopied
  | Preempted
  | RadixEvicted
  | StepScheduled
  | Forked
  | StepFinished
  | BlocksTrimmed
  | RadixSplit
  | RadixJoined
  | RadixInserted
  | RadixExtended
  | BlocksStored
  | BlockEvicted
  | BlockWithdrawn
  | WindowPagesEvicted
  | RequestFinished
  | PrefixHeld
  | PrefixReleased
  | PrefixAdopted
  | EnginePaused
  | EngineResumed
  | EventsMissing
  | BlocksReported
  | StepReported
  | Keyframe;
