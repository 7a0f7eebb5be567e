/**
 * The fields of each kind of event and of each struct in it, with their types.
 * Generated from `engine/cluster/events.py`. Do not edit;
 * `make tables` writes it.
 */

export const SCHEMA = 1;

export const VOCABULARY = {
  cluster_started: "schema:i router:s options:{a t?:{a",
  replica_joined: "replica:s url?:s role?:s run?:s t?:{a",
  replica_left: "replica:s why:s t?:{a",
  of: "replica:s seq:i event:*",
  routed: "request:i label:s replica:s attempt:i reason:'least_cached|least_loaded|least_work|less_loaded_of_two|load_unbalanced|longest_prefix|lowest_cost|next_in_turn|pinned|prefix_on_its_way|random prompt:i hits:{i loads:{i scores:{n terms?:{{n ties?:{{n output?:i t?:{a",
  placed: "request:i replica:s its_request:i t?:{a",
  hop_failed: "request:i replica:s hop:'adopt|export|first_token|prefill|queue|render|stream noticed:'closed|error|late|refused|silent|unreachable remedy:'continued|elsewhere|ended|here|waits why:s t?:{a",
  replica_ejected: "replica:s why:s t?:{a",
  replica_returned: "replica:s half_open?:b t?:{a",
  request_lost: "request:i replica:s t?:{a",
  controlled: "what:s replica?:?s t?:{a",
  moved: "request:i source:s target:s tokens:i blocks:i bytes:i t?:{a",
} as const;
