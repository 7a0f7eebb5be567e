/**
 * The words for a decision of the router: the sentence above the picture, and its reason in the table. Requests are
 * spans with the cluster's ids.
 */

import { duration } from "../model/duration.ts";
import { bold, count, list, type Span, say } from "../model/words.ts";
import { clusterFacts, predictedHit } from "./cluster_facts.ts";
import type { ClusterModel, ClusterRequest, Route } from "./cluster_model.ts";
import { gonePrefix } from "./gone_prefix.ts";
import type { Replica } from "./replica.ts";

const SHORT_WAIT = 1.5; // steps before an admission that are no wait worth telling

/** What a request waits for, by its cause. */
const WAITS: Record<string, string> = {
  batch_full: "for a seat",
  no_free_blocks: "for free blocks",
  token_budget: "for the token budget",
};

const tagOf = ({ name, id }: ClusterRequest): Span => ({ text: name, request: id });

/** The sentence of a decision; without one, of the run. */
export function clusterSentence(model: ClusterModel, route: Route | null): Span[] {
  if (!route) return runSentence(model);
  const tag = tagOf(route.request);
  const again = route.attempt > 1 ? " again" : "";
  const lead = bold(
    say`At ${duration(route.at)} the router sends ${tag}${again} to replica ${route.replica}`,
  );
  const parts = [
    found(model, route),
    queued(model, route),
    ...moved(route),
    lost(model, route),
  ].filter((part) => part.length);
  return parts.reduce((all, part) => say`${all} ${part}`, say`${lead}${becauseOf(route)}.`);
}

function runSentence(model: ClusterModel) {
  const { requests, judged, wrong, lost: gone } = clusterFacts(model);
  const lead = bold(
    say`${count(requests, "request")} went to ${count(model.replicas.length, "replica")}.`,
  );
  const right = judged
    ? say` ${judged - wrong.length} of ${judged} predicted hits were delivered as predicted.`
    : [];
  return say`${lead}${right}${gone ? ` ${count(gone, "request")} ended with a replica.` : ""}`;
}

/** ", because ...": why the router chose the replica. */
function becauseOf(route: Route) {
  const { prompt, reason, loads, replica } = route;
  const hit = predictedHit(route);
  const expects = `it expects to find ${hit} of its ${prompt} prompt tokens there`;
  const best = Math.max(0, ...Object.values(route.hits));
  const load = loads[replica] ?? 0;
  const none = hit ? expects : "no replica is expected to have its prefix";
  switch (reason) {
    case "longest_prefix":
      return `, because ${expects}`;
    case "prefix_on_its_way":
      return `, because a request on its way there will compute ${hit} of its ${prompt} prompt tokens`;
    case "lowest_cost":
      return best > hit
        ? `: another replica may have ${best} of its ${prompt} prompt tokens, but more work`
        : `, because it costs least there and ${none}`;
    case "least_work":
      return `, because ${none} and it has the least work`;
    case "least_loaded":
      return `, because it has the fewest requests, ${load}`;
    case "less_loaded_of_two":
      return `, because it has the fewer requests of two replicas that were drawn, ${load}`;
    case "least_cached":
      return ", because no cached prefix is long enough and it has the most room for a new one";
    case "load_unbalanced":
      return ", because the loads differ so much that prefixes do not count";
    case "random":
      return ", at random";
    case "next_in_turn":
      return ", because it is next in turn";
    case "pinned":
      return ", because its session belongs there";
    default:
      return `: ${reason.replaceAll("_", " ")}`;
  }
}

/** What the replica had of it. */
function found(model: ClusterModel, route: Route) {
  const delivered = model.delivered(route);
  const predicted = predictedHit(route);
  const move = route.request.moves.findLast(({ target }) => target === route.replica);
  if (move)
    return say`${count(move.blocks, "block")} come from replica ${move.source}${delivered === null ? "" : `, and it finds ${delivered} tokens`}.`;
  if (delivered === null || (!predicted && !delivered)) return say``;
  if (delivered === predicted) return say`It finds all of them.`;
  if (delivered > predicted)
    return say`It finds ${delivered}${predicted ? ", more than predicted" : " of them in the cache"}.`;
  const much = delivered ? `It finds only ${delivered}` : "It finds none";
  const at = gonePrefix(model, route)?.at;
  if (at == null) return say`${much}.`;
  const when =
    at <= route.at ? `${duration(route.at - at)} earlier` : `${duration(at - route.at)} later`;
  return say`${much}: replica ${route.replica} evicted that prefix ${when}.`;
}

/** How long it waited for its admission, if that is worth telling. */
function queued(model: ClusterModel, route: Route) {
  const replica = model.replica(route.replica);
  const [admission] = model.spanOf(route)?.admissions ?? [];
  if (!replica?.axis) return say``;
  if (!admission) return route.request.losses.length ? say`` : say`It has not been admitted yet.`;
  const wait = replica.startOf(admission.step) - route.at;
  if (!(wait > SHORT_WAIT * replica.axis.typical)) return say``;
  const { reason } = replica.model.waitAt(admission.step - 1, Number(route.its));
  const cause = WAITS[reason ?? ""] ?? "in the queue";
  const idle = model.replicas.flatMap((other) => {
    if (other === replica || other.left || !other.hasBegun) return [];
    const { taken, all } = seatsAt(other, route.at);
    return all - taken > 0 ? [`${all - taken} free on replica ${other.id}`] : [];
  });
  const others = idle.length ? say`; seats: ${list(idle, 3)}` : say``;
  return say`${tagOf(route.request)} waits ${duration(wait)} ${cause}${others}.`;
}

/** "2 replicas have joined". */
export const joinedWords = ({ replicas: { length } }: ClusterModel) =>
  `${count(length, "replica")} ${length === 1 ? "has" : "have"} joined`;

/** The seats of a replica at a time. */
export function seatsAt(replica: Replica, at: number) {
  const { axis, model } = replica;
  const all = model.settings.max_batch_size;
  if (!axis || at < axis.from) return { taken: 0, all };
  const step = replica.stepAt(at);
  const { seats, running } = model.measures;
  // Between two steps, requests that ended in the first have left.
  const taken = at < axis.end(step) ? seats : running;
  return { taken: taken[step - model.firstStep], all };
}

function moved({ request, replica }: Route) {
  return request.moves
    .filter(({ source }) => source === replica)
    .map(
      ({ target, tokens, blocks, us }) =>
        say`Its first ${tokens} tokens, ${count(blocks, "block")}, move to replica ${target}${us ? ` in ${duration(us)}` : ""}.`,
    );
}

function lost(model: ClusterModel, route: Route) {
  return model.isLost(route) ? say`The replica ended, and the request with it.` : say``;
}

/** The reason in a few words, for the table. */
export const REASONS: Record<string, string> = {
  longest_prefix: "it is expected to have the longest prefix",
  prefix_on_its_way: "a request on its way there will compute the prefix",
  lowest_cost: "prefix and work together cost least there",
  least_work: "no replica has the prefix, and it has the least work",
  least_loaded: "it has the fewest requests",
  less_loaded_of_two: "it has fewer requests than the other one that was drawn",
  least_cached: "it has the most room for a new prefix",
  load_unbalanced: "the loads differ too much for prefixes to count",
  random: "chosen at random",
  next_in_turn: "it is next in turn",
  pinned: "the session belongs to it",
};
