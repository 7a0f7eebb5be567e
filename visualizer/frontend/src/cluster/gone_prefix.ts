/**
 * A prefix that the router expected on a replica and that was no longer there: which of its blocks, and when they were
 * evicted. The log does not say that the eviction is the reason: it is inferred from the tokens of the evicted node.
 */

import type { State } from "../model/fold.ts";
import { predictedHit } from "./cluster_facts.ts";
import type { ClusterModel, Route } from "./cluster_model.ts";

export interface GonePrefix {
  from: number; // the first block that is missing
  blocks: number; // number of missing blocks
  at: number | null; // when they were evicted (us); null: no eviction of them is in the log
}

const SEARCHED = 300; // steps with evictions

/** The last answers: all panels ask about the same decision. */
const known: WeakMap<Route, { lines: number; gone: GonePrefix | null }> = new WeakMap();

/** What is missing of the predicted prefix; null if nothing is. */
export function gonePrefix(model: ClusterModel, route: Route): GonePrefix | null {
  const { lineCount: lines } = model;
  const kept = known.get(route);
  if (kept?.lines === lines) return kept.gone;
  const gone = search(model, route);
  known.set(route, { lines, gone });
  return gone;
}

function search(model: ClusterModel, route: Route): GonePrefix | null {
  const delivered = model.delivered(route);
  const run = model.runOf(route);
  const span = run?.span(route.its);
  if (delivered === null || !run || !span || delivered >= predictedHit(route)) return null;
  const { model: log } = run;
  const size = log.settings.block_size;
  const from = delivered / size;
  const blocks = Math.floor(predictedHit(route) / size) - from;
  const { measures, firstStep } = log;
  let left = SEARCHED;
  for (let step = span.admissions[0].step; step >= firstStep && left > 0; step -= 1) {
    if (!measures.evicted.at(step - firstStep)) continue;
    left -= 1;
    const state = step > firstStep ? log.stateAt(step - 1) : null;
    if (!state) break;
    const { from: first, to } = log.stepInfo(step);
    for (const event of log.eventsIn(first, to)) {
      if (event.type === "radix_evicted" || event.type === "block_evicted")
        if (isPrefix(state, event.node, span.tokens, from))
          return { from, blocks, at: run.startOf(step) };
      state.apply(event);
    }
  }
  return { from, blocks, at: null };
}

/** Whether the path to a node holds the first tokens of a prompt, up to a block after the first `from`. */
function isPrefix(state: State, id: number, prompt: number[], from: number) {
  const path = state.path(id).reverse();
  const tokens = path.flatMap((node) => state.tokensOf(node));
  if (tokens.length <= from * state.blockSize) return false;
  const end = (from + 1) * state.blockSize;
  for (let i = 0; i < end; i += 1) if (tokens[i] !== prompt[i]) return false;
  return true;
}
