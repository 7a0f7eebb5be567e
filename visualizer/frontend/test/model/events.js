/** Events for hand-made logs: one short function per kind of event; and what tests ask of a model. */

/** The measures of a model as lists. */
export const measured = (model) =>
  Object.entries(model.measures).map(([name, one]) => [name, one.at ? [...one] : one]);

/** All steps of a model. */
export const stepsOf = (model) =>
  Array.from({ length: model.stepCount }, (_, index) => model.stepInfo(model.firstStep + index));

/** Memory of 6 blocks of 2 slots, budget 8, batch 3, by default. */
export function started(settings = {}, classes = {}) {
  return {
    type: "run_started",
    schema: 2,
    settings: {
      token_budget: 8,
      max_batch_size: 3,
      num_blocks: 6,
      block_size: 2,
      batching: "continuous",
      prefix_cache: "radix",
      ...settings,
    },
    classes: { policy: "Fcfs", ...classes },
    model: {},
    tokenizer: {},
    clock: "virtual",
  };
}

/** A prompt is a string; its letters are its tokens. */
export function arrived(
  request,
  prompt,
  { label = "", n = 1, max_tokens = 4, priority = 0, at } = {},
) {
  return {
    type: "request_arrived",
    request,
    prompt: [...prompt].map((letter) => letter.codePointAt(0)),
    texts: [...prompt],
    label,
    max_tokens,
    n,
    priority,
    sampling: {},
    ...(at === undefined ? {} : { t: { at } }),
  };
}

let begun = 0;
export const step = (number) => {
  begun = number;
  return { type: "step_started", step: number };
};
export const admitted = (request, node = 0, blocks = [], resumed = false) => ({
  type: "admitted",
  request,
  node,
  blocks,
  resumed,
  key: [],
});
export const allocated = (request, ...blocks) => ({ type: "blocks_allocated", request, blocks });
export const copied = (request, index, source, block) => ({
  type: "block_copied",
  request,
  index,
  source,
  block,
});
export const preempted = (request, needed_by, refunded = 0) => ({
  type: "preempted",
  request,
  needed_by,
  refunded,
});
export const evicted = (node, needed_by, reason = "room") => ({
  type: "radix_evicted",
  node,
  needed_by,
  reason,
});
export const scheduled = (rows, { skipped = [], blocked } = {}) => ({
  type: "step_scheduled",
  rows,
  skipped,
  ...(blocked ? { blocked } : {}),
});
export const forked = (request, parent, sample) => ({ type: "forked", request, parent, sample });

/** The end of the step that was begun last, with tokens as `[request, text, accepted?, forced?]`. */
export function finished(gains = [], t) {
  const tokens = gains.map(([request, text, accepted = 0, forced = 0]) => [
    request,
    [...text].map((letter) => letter.codePointAt(0)),
    [...text],
    accepted,
    forced,
  ]);
  return { type: "step_finished", tokens, step: begun, ...(t ? { t } : {}) };
}
export const trimmed = (request, keep) => ({ type: "blocks_trimmed", request, keep });
export const split = (node, at, upper) => ({ type: "radix_split", node, at, upper });
export const joined = (request, node, ...blocks) => ({
  type: "radix_joined",
  request,
  node,
  blocks,
});
export const inserted = (request, node, parent, ...blocks) => ({
  type: "radix_inserted",
  request,
  node,
  parent,
  blocks,
});
export const extended = (request, node, ...blocks) => ({
  type: "radix_extended",
  request,
  node,
  blocks,
});
export const stored = (request, parent, nodes, blocks) => ({
  type: "blocks_stored",
  request,
  parent,
  nodes,
  blocks,
});
export const blockEvicted = (node, block, needed_by, reason = "room") => ({
  type: "block_evicted",
  node,
  block,
  needed_by,
  reason,
});
export const withdrawn = (request, node, block) => ({
  type: "block_withdrawn",
  request,
  node,
  block,
});
/** Blocks that replica 0 computed; the prefix's letters are the tokens. */
export const adopted = (parent, nodes, blocks, prefix) => ({
  type: "prefix_adopted",
  parent,
  nodes,
  blocks,
  tokens: [...prefix].map((letter) => letter.codePointAt(0)),
  texts: [...prefix],
  source: "replica 0",
});
export const ended = (request, reason = "length", message = "") => ({
  type: "request_finished",
  request,
  reason,
  ...(message ? { message } : {}),
});
