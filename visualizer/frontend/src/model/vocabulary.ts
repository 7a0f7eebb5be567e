/**
 * The fields of each kind of event and of each struct in it, with their types.
 * Generated from `engine/core/log/vocabulary.py`. Do not edit;
 * `make tables` writes it.
 */

export const SCHEMA = 2;
export const KEYFRAME_SCHEMA = 3;
export const INDEXED = 3047317977;

export const VOCABULARY = {
  ScheduledRow: "#request:i start:i count:i drafts?:[i",
  Blocked: "#request:i reason:'adapter_slot|after_preemption|batch_full|expected_tokens|no_free_blocks|policy|reserved_blocks|static_batch|token_budget|whole_sequence behind:i need:i have:i",
  TokenRow: "#request:i ids:[i texts:[s accepted?:i forced?:i allowed?:[i",
  RequestState: "id:i root:i sample:i prompt_length:i tokens:[i num_computed_tokens:i block_table:[i last_node:i num_seqs:i preemptions:i texts:[s label:s priority:i max_tokens:i sampling:{a extra_key?:[s group_tables?:[[i",
  NodeRecord: "id:i parent:i tokens?:[i blocks?:[i copies?:[i last?:i lock_ref?:i extra_key?:[s texts?:[s source?:s hash?:?s media?:?[s",
  HoldState: "id:i block_table:[i last_node:i label?:s",
  KeyframeState: "window_pages?:?[i tiers?:?{[i adapters?:[s seq:i step:i tick:i paused:b waiting:[i running:[i plan:[<ScheduledRow in_flight:[(i,[<ScheduledRow free:[i queue:[i refs:[i requests:[<RequestState nodes:[<NodeRecord holds:[<HoldState settings:{a classes:{s source?:{a reported?:?<step_reported expert_loads?:[[i lanes?:[(?i,i,s tier_texts?:{[s schema:i",
  run_started: "schema:i settings:{a classes:{s model:{a tokenizer:{a clock:s source?:{a t?:{a",
  request_arrived: "request:i prompt:[i texts:[s label:s max_tokens:i n:i priority:i sampling:{a hashes?:[s extra_key?:[s output?:[i sample?:i t?:{a",
  step_started: "step:i",
  admitted: "request:i node:i blocks:[i resumed:b key:[n hits?:[i",
  blocks_allocated: "request:i blocks:[i",
  group_table_changed: "request:i group:i changes:[(i,i",
  block_copied: "request:i index:i source:i block:i",
  preempted: "request:i needed_by:i refunded:i",
  radix_evicted: "node:i needed_by:i reason:'adopted|cleared|room",
  step_scheduled: "rows:[<ScheduledRow skipped:[(i,s blocked?:?<Blocked",
  forked: "request:i parent:i sample:i",
  step_finished: "tokens:[<TokenRow step:i wasted?:[i expert_loads?:[[i draft_error?:s t?:{a",
  blocks_trimmed: "request:i keep:i",
  radix_split: "node:i at:i upper:i",
  radix_joined: "request:i node:i blocks:[i",
  radix_inserted: "request:i node:i parent:i blocks:[i",
  radix_extended: "request:i node:i blocks:[i",
  blocks_stored: "request:i parent:i nodes:[i blocks:[i",
  block_evicted: "node:i block:i needed_by:i reason:'adopted|cleared|room",
  block_withdrawn: "request:i node:i block:i",
  window_pages_evicted: "blocks:[i needed_by:i",
  request_finished: "request:i reason:'abort|error|length|stop message?:s matched?:s",
  prefix_held: "hold:i node:i blocks:[i label:s",
  prefix_released: "hold:i reason:'released|room",
  prefix_adopted: "parent:i nodes:[i blocks:[i tokens:[i texts:[s source:s window_pages?:i t?:{a",
  blocks_moved: "source:'|disk|gpu|host target:'|disk|gpu|host reason:'cheaper|cleared|computed|damaged|dearer|evicted|failed|fetched|late|prefetched|room|used blocks:[i slots:[i request?:i texts?:[s detail?:s t?:{a",
  adapter_changed: "slot:i adapter:s evicted:s request?:i path?:s rank?:i nbytes?:i",
  engine_paused: "t?:{a",
  engine_resumed: "t?:{a",
  events_missing: "count:i message:s t?:{a",
  blocks_reported: "parent:i nodes:[i blocks:[i tokens:[i hashes:[s medium:s",
  step_reported: "prefills:i prefill_tokens:i decodes:i waiting:i waiting_tokens:i",
  keyframe: "seq:i state:<KeyframeState",
} as const;
