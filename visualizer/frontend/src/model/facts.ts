/**
 * The fields of each kind of event and of each struct in it, with their types.
 * Generated from `visualizer/indexed/facts.py`. Do not edit;
 * `make tables` writes it.
 */

export const VOCABULARY = {
  Segment: "#kind:s begin:i end:?i drafts?:i accepted?:i recomputed?:i start?:i count?:i found?:i reaches_output?:b by?:?i resume?:?i reason?:s wasted?:s",
  LiveRequest: "#id:i length:i num_computed_tokens:i block_table:[i last_node:i num_seqs:i preemptions:i extra_key:[s group_tables:[[i",
  LiveNode: "#id:i parent:i last:i lock_ref:i origin:i begin:i used:?i blocks:[i copies:[i source:s hash:?s media:?[s extra_key:[s",
  Blocked: "#request:i reason:'adapter_slot|after_preemption|batch_full|expected_tokens|no_free_blocks|policy|reserved_blocks|static_batch|token_budget|whole_sequence behind:i need:i have:i",
  steps: "step:[i first:[i last:[i status:[s scheduled:[?i counts:[[i times:[[?n chunks:[[(i,i computed:[[i blocked:[?<Blocked deferred:[[(i,s missing:[[{a",
  finished: "number:[i begin:[?n launched:[?n ready:[?n end:[?n decodes:[i prefills:[i blocked:[?<Blocked skipped:[[(i,s failed:[b is_after_gap:[b",
  request: "id:i index:i label:s root:i sample:i n:i prompt_length:i max_tokens:i priority:i sampling:{a extra_key:[s tokens:[i texts:[s hashes:[s lane:?i laned_at:?i arrived:?i arrived_at:?n examined:i begins_at:i ends_at:?i first_token:?i admitted:?(i,i,i,s shortfall:?(i,i computed:i admissions:[(i,i,b,i preemptions:[(i,i,?i forked:?(i,i finished:?(i,s,s,i token_steps:[i logprobs:[n drafted:[i forced:[i masks:[?(i,?s,?n segments:[<Segment before:[<Segment ttft:?n slowest:n",
  name: "",
  content: "tokens:[i texts:[s hashes:[s token_steps:[i logprobs:[n drafted:[i forced:[i masks:[?(i,?s,?n sampling:{a",
  run: "first_seq:i steps_before:i settings:{a classes:{s source:{a model:?{a tokenizer:?{a expert_loads:[[i causes:[s pauses:[(n,n has_times:b itl:[(s,n",
  plans: "",
  slice: "state:a requests:[<LiveRequest nodes:[<LiveNode contents:[([i,[s reach:i",
  life: "segments:[<Segment before:[<Segment",
} as const;
