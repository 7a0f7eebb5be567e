/** A folded state as an event, as `State.keyframe` in Python: the start of a log without the events before it. */

import type { Events } from "./events.ts";
import type { State } from "./fold.ts";
import { KEYFRAME_SCHEMA } from "./vocabulary.ts";

export function keyframe(state: State): Events["keyframe"] {
  const { seq, step, tick, paused, running, plan, plans, queue, settings, classes } = state;
  const { windowPages: pages, tiers, adapters, source, reported, lanes } = state;
  const { host, disk } = tiers ?? {};
  const requests = state.requests.list().map(({ content, length, place, epoch, ...request }) => ({
    ...request,
    tokens: content.tokens.slice(0, length),
    texts: content.texts.slice(0, length),
  }));
  const nodes = state.nodes.list().map((item) => {
    const { content, from, used, below, epoch, ...node } = item;
    return { ...node, tokens: state.tokensOf(item), texts: state.textsOf(item) };
  });
  const values = {
    ...(pages && { window_pages: [...pages].sort((a, b) => a - b) }),
    ...(host && disk && { tiers: { host: [...host.keys()], disk: [...disk.keys()] } }),
    ...(host && disk && { tier_texts: { host: [...host.values()], disk: [...disk.values()] } }),
    ...(adapters.length && { adapters }),
    seq,
    step,
    tick,
    paused,
    waiting: state.waiting(),
    running,
    plan,
    in_flight: [...plans].filter(([number, rows]) => number !== step && rows.length),
    free: state.free.list(),
    queue,
    refs: Array.from({ length: settings.num_blocks ?? 0 }, (_, block) => state.refs(block)),
    requests,
    nodes,
    holds: [...state.holds.values()].sort((a, b) => a.id - b.id),
    settings,
    classes,
    source,
    reported,
    expert_loads: state.expertLoads,
    lanes,
    schema: KEYFRAME_SCHEMA,
  };
  return { type: "keyframe", seq, state: values };
}
