/** A folded state in plain values without what viewers show, as `State.core` and the engine's snapshot in Python. */

import { keyframe } from "../../src/model/keyframe.ts";

const VALUES =
  "window_pages tiers adapters seq step tick paused waiting running plan in_flight free queue refs";
const REQUEST =
  "id root sample prompt_length tokens num_computed_tokens block_table last_node num_seqs preemptions";
const picked = (values, names) =>
  Object.fromEntries(
    names.split(" ").flatMap((name) => (name in values ? [[name, values[name]]] : [])),
  );

export function core(/** @type {import("../../src/model/fold.ts").State} */ state) {
  const values = JSON.parse(JSON.stringify(keyframe(state).state));
  return {
    ...picked(values, VALUES),
    requests: values.requests.map((request) => picked(request, REQUEST)),
    nodes: values.nodes.map((node) =>
      picked(node, "id parent tokens blocks copies last lock_ref extra_key"),
    ),
    holds: values.holds.map((hold) => picked(hold, "id block_table last_node")),
  };
}
