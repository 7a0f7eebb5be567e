/**
 * The words for a decision of the router: the sentence above the picture, and its reason in the table. Requests are
 * spans with the cluster's ids.
 */

import { duration } from "../model/duration.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { bold, count, list, type Span, say } from "../model/words.ts";
import { clusterFacts, predictedHit } from "./cluster_facts.ts";
import type { ClusterModel, ClusterRequest, Failure, Route } from "./cluster_model.ts";
import { gonePrefix } from "./gone_prefix.ts";
import type { Replica } from "./replica.ts";

/** A busy engine that takes no step for so long is worth a word: us, and typical steps. */
const LONG_PAUSE = 1e6;
const LONG_STEPS = 20;
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
    ...failedBefore(route),
    say`${lead}${becauseOf(route)}.`,
    found(model, route),
    queued(model, route),
    continued(model, route),
    ...moved(route),
    ...failedAfter(route),
    lost(route),
  ].filter((part) => part.length);
  return parts.reduce((all, part) => say`${all} ${part}`);
}

function runSentence(model: ClusterModel) {
  const { requests, judged, wrong, lost: gone, continued: saved } = clusterFacts(model);
  const lead = bold(
    say`${count(requests, "request")} went to ${count(model.replicas.length, "replica")}.`,
  );
  const right = judged
    ? say` ${judged - wrong.length} of ${judged} predicted hits were delivered as predicted.`
    : [];
  const went = saved ? ` ${count(saved, "request")} went on at another replica.` : "";
  return say`${lead}${right}${went}${gone ? ` ${count(gone, "request")} ended with an error.` : ""}`;
}

/** The replicas that the router could choose: those whose load it recorded. It may know hits of others, too. */
export function candidateIds({ loads, hits, replica }: Route) {
  const ids = Object.keys(loads).length ? Object.keys(loads) : Object.keys(hits);
  return [...new Set([...ids, replica])];
}

/** Whether the router had no choice. */
const isAlone = ({ loads, reason }: Route) =>
  Object.keys(loads).length === 1 && reason !== "pinned";

/** The best of the other candidates; `sign` is -1 if less is better. */
function bestOther(route: Route, of: Record<string, number>, sign: number) {
  const others = candidateIds(route).filter((id) => id !== route.replica && id in of);
  const [best] = others.sort((a, b) => sign * (of[b] - of[a]));
  return best === undefined ? null : { replica: best, value: of[best] };
}

/** What a decision's hits are a part of: a request that is continued takes its output along. */
export const lengthWords = ({ prompt, output }: Route) =>
  output ? `${prompt} + ${output} tokens` : `${prompt} prompt tokens`;

/** ", because ...": why the router chose the replica, as far as the decision's own numbers say it. */
function becauseOf(route: Route) {
  const { reason } = route;
  const hit = predictedHit(route);
  const tokens = lengthWords(route);
  const expects = `it expects to find ${hit} of its ${tokens} there`;
  const longest = bestOther(route, route.hits, 1);
  if (isAlone(route))
    return `, the only one it could choose${hit ? `, where it expects to find ${hit} of its ${tokens}` : ""}`;
  switch (reason) {
    case "longest_prefix":
      return `, because ${expects}`;
    case "prefix_on_its_way":
      return `, because a request on its way there should compute ${hit} of its ${tokens}`;
    case "lowest_cost":
      return longest && longest.value > hit
        ? `: replica ${longest.replica} may have ${longest.value} of its ${tokens}, not ${hit}, but costs more${scored(route)}`
        : `, because prefix and work together cost least there${scored(route)}`;
    case "least_work":
      return `, because ${unknownPrefix(route)}it costs least there${scored(route)}`;
    case "least_loaded":
    case "less_loaded_of_two":
      return leastLoaded(route);
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

/** ": 320, against 1,536 at replica 1": the score, which is lowest, and the next one. */
function scored(route: Route) {
  const own = route.scores[route.replica];
  const other = bestOther(route, route.scores, -1);
  if (own === undefined || !other) return "";
  const rival = `at replica ${other.replica}`;
  const [mine, theirs] = [numberWords(own), numberWords(other.value)];
  return `: ${mine}, ${other.value === own ? `as ${rival}${isByChance(route) ? ", by chance" : ""}` : `and ${theirs} ${rival}`}`;
}

const isByChance = (route: Route) => tieWords(route).endsWith("chance decides");

/** What the router knew of the prompt, if that is nothing: "no replica is expected to have its prefix and ". */
function unknownPrefix(route: Route) {
  const { hits, prompt } = route;
  if (!prompt && Object.keys(hits).length) return "its prompt's tokens are unknown and ";
  const best = Math.max(predictedHit(route), bestOther(route, hits, 1)?.value ?? 0);
  return best || !Object.keys(hits).length ? "" : "no replica is expected to have its prefix and ";
}

/** Logs of earlier versions also say this of a replica with the lowest score, although another has fewer requests. */
function leastLoaded(route: Route) {
  const { replica, loads, scores, reason } = route;
  const load = loads[replica] ?? 0;
  const drawn = Object.keys(scores);
  const isOfTwo = drawn.length === 2 && Object.keys(loads).length > 2;
  if (
    reason === "less_loaded_of_two" ||
    (isOfTwo && drawn.every((id) => scores[id] === loads[id]))
  ) {
    const other = drawn.find((id) => id !== replica);
    const rival = other === undefined ? "" : `; replica ${other} has ${loads[other] ?? 0}`;
    return other !== undefined && loads[other] === load
      ? `, the first of two that were drawn, with ${count(load, "request")} each`
      : `, because it has the fewer requests of two that were drawn, ${load}${rival}`;
  }
  const why = unknownPrefix(route);
  const fewest = bestOther(route, loads, -1);
  if (fewest && fewest.value < load) return `, because ${why}it costs least there${scored(route)}`;
  return fewest?.value === load
    ? `, because ${why}no replica has fewer requests than ${load}`
    : `, because ${why}it has the fewest requests, ${load}`;
}

/** What the router compared next, of the replicas that have the lowest score; "" if there was no tie. */
export function tieWords({ ties, replica }: Route) {
  const others = Object.keys(ties).filter((id) => id !== replica);
  const own = ties[replica];
  if (!own || !others.length) return "";
  let rivals = others;
  for (const [name, value] of Object.entries(own)) {
    const next = Math.max(...rivals.map((id) => ties[id][name]));
    if (value > next)
      return `${sameScore(replica, others)}, and ${TIES[name]?.(value, next, replica) ?? `the ${name} of replica ${replica} is larger`}`;
    rivals = rivals.filter((id) => ties[id][name] === value);
  }
  return `${sameScore(replica, others)}, and all else is equal`;
}

const sameScore = (replica: string, others: string[]) =>
  `Replicas ${[replica, ...others].join(" and ")} have the same score`.replace(
    / and (?=.* and )/g,
    ", ",
  );

/** Why a tie went to a replica, by what was compared; larger is better. */
const TIES: Record<string, (own: number, next: number, id: string) => string> = {
  free: (own, next, id) =>
    `replica ${id} has more free memory: ${numberWords(own)} tokens, not ${numberWords(next)}`,
  room: (own, next, id) =>
    `fewer tokens were sent to replica ${id}: ${numberWords(-own)}, not ${numberWords(-next)}`,
  fewer_requests: (own, next, id) => `replica ${id} has fewer requests: ${-own}, not ${-next}`,
  drawn_first: (_own, _next, id) => `replica ${id} was drawn first`,
  draw: () => "chance decides",
};

/** A number of a decision: a score, a term or a tie-break. */
export const numberWords = (value: number) => Number(value.toPrecision(4)).toLocaleString("en");

/** What the replica had of it. */
function found(model: ClusterModel, route: Route) {
  const delivered = model.delivered(route);
  const predicted = predictedHit(route);
  const move = route.request.moves.findLast(({ target }) => target === route.replica);
  if (route.output && delivered !== null) return say``; // `continued` tells it
  if (move)
    return say`${count(move.blocks, "block")} come from replica ${move.source}${delivered === null ? "" : `, and it finds ${delivered} tokens`}.`;
  if (delivered === null || (!predicted && !delivered)) return say``;
  if (delivered === predicted) return say`It finds all of them.`;
  if (delivered > predicted)
    return say`It finds ${delivered}${predicted ? ", more than predicted" : " of its tokens in the cache"}.`;
  const much = delivered ? `It finds only ${delivered}` : "It finds none";
  const at = gonePrefix(model, route)?.at;
  if (at == null) return say`${much}.`;
  const when =
    at <= route.at ? `${duration(route.at - at)} earlier` : `${duration(at - route.at)} later`;
  return say`${much}: replica ${route.replica} evicted that prefix ${when}.`;
}

/** How long it waited for its admission, if that is worth telling. */
function queued(model: ClusterModel, route: Route) {
  const run = model.runOf(route);
  const span = run?.span(route.its);
  const [admission] = span?.admissions ?? [];
  if (!run?.axis || !span) return say``;
  if (!admission) return isOver(route) ? say`` : say`It has not been admitted yet.`;
  const wait = run.startOf(admission.step) - route.at;
  if (!(wait > SHORT_WAIT * run.axis.typical)) return say``;
  const isSeen = wasSeen(span);
  const { reason } = isSeen ? run.model.waitAt(admission.step - 1, span.id) : { reason: null };
  if (!isSeen && route.output) return say``;
  if (!isSeen)
    return say`${tagOf(route.request)} is admitted ${duration(wait)} later, by the first step after its arrival.`;
  const cause = WAITS[reason ?? ""] ?? "in the queue";
  const could = candidateIds(route);
  const hasLoads = Object.keys(route.loads).length > 0;
  const idle = model.replicas.flatMap((other) => {
    if (other.id === route.replica || (hasLoads && !could.includes(other.id))) return [];
    if (stalledSince(other, route.at) !== null) return [];
    const { taken, all } = seatsAt(other, route.at);
    return all > taken ? [`${all - taken} free on replica ${other.id}`] : [];
  });
  const others = idle.length ? say`; seats: ${list(idle, 3)}` : say``;
  return say`${tagOf(route.request)} waits ${duration(wait)} ${cause}${others}.`;
}

/** Whether a step before its admission could have admitted a request; one before its arrival could not. */
export const wasSeen = ({ examined, admissions: [first] }: RequestSpan) =>
  first !== undefined && examined < first.step;

/** Whether the way of a request went on, or ended, after a decision. */
const isOver = ({ request, index, isLost }: Route) =>
  isLost || request.routes.some((other) => other.index > index);

/** "2 replicas have joined". */
export const joinedWords = ({ replicas: { length } }: ClusterModel) =>
  `${count(length, "replica")} ${length === 1 ? "has" : "have"} joined`;

/** The seats of a replica at a time; none while it is not there, or gets no requests. */
export function seatsAt(replica: Replica, at: number) {
  const run = replica.runAt(at);
  if (!run || !replica.stayAt(at) || replica.ejectionAt(at) || replica.deathAt(at))
    return { taken: 0, all: 0 };
  const { axis, model } = run;
  const all = model.settings.max_batch_size;
  if (!axis || at < axis.from) return { taken: 0, all };
  const step = run.stepAt(at);
  const { seats, running } = model.measures;
  // Between two steps, requests that ended in the first have left.
  const taken = at < axis.end(step) ? seats : running;
  return { taken: taken.at(step - model.firstStep), all };
}

/** The requests that wait on a replica at a time. */
export function queueAt(replica: Replica, at: number) {
  const run = replica.stayAt(at) && !replica.deathAt(at) ? replica.runAt(at) : null;
  if (!run?.axis || at < run.axis.from) return 0;
  return run.model.measures.waiting.at(run.stepAt(at) - run.model.firstStep);
}

/** When the last step of an engine ended that has requests and takes no step for long; null if it works or is idle. */
function stalledSince(replica: Replica, at: number) {
  const run = replica.stayAt(at) && replica.runAt(at);
  if (!run?.axis || at < run.axis.from) return null;
  const end = run.axis.end(run.stepAt(at));
  const isBusy = seatsAt(replica, at).taken + queueAt(replica, at) > 0;
  return isBusy && at - end > Math.max(LONG_PAUSE, LONG_STEPS * run.axis.typical) ? end : null;
}

/** What a replica does at a time: its seats and its queue, or why it gets no requests. */
export function presenceWords(model: ClusterModel, replica: Replica, at: number) {
  const role = replica.role && replica.role !== "both" ? `${replica.role}, ` : "";
  if (!replica.stayAt(at)) {
    const gone = replica.leftBy(at);
    return gone?.to
      ? `${role}left at ${duration(gone.to)}: ${gone.why}`
      : `${role}has not joined yet`;
  }
  const ejection = replica.ejectionAt(at);
  if (ejection) {
    const { from, why, trial = Infinity } = ejection;
    const tried = at >= trial ? `; tried again since ${duration(trial)}` : "";
    return `${role}ejected at ${duration(from)}: ${why}${tried}`;
  }
  const death = replica.deathAt(at);
  if (death) return `${role}no engine since ${duration(death.from)}: ${death.why}`;
  const run = replica.runAt(at);
  const { taken, all } = seatsAt(replica, at);
  if (!run || !all) return `${role}not started`;
  const seats = `${role}${taken} of ${count(all, "seat")}`;
  const queue = queueAt(replica, at);
  const since = stalledSince(replica, at);
  const pause = since === null ? "" : `; no step since ${duration(since)}`;
  if (run.axis) return `${seats}${queue ? `, ${queue} waiting` : ""}${pause}`;
  if (run.hasSteps) return `${seats}; its log has no times`;
  const sent = model.routes.filter((one) => one.replica === replica.id && one.at <= at);
  const unanswered = sent.filter((one) => one.at >= run.began && !isOver(one)).length;
  return `${seats}; no step yet${unanswered ? `, ${count(unanswered, "request")} sent there` : ""}`;
}

function moved({ request, replica }: Route) {
  return request.moves
    .filter(({ source }) => source === replica)
    .map(
      ({ target, tokens, blocks, us }) =>
        say`Its first ${tokens} tokens, ${count(blocks, "block")}, move to replica ${target}${us ? ` in ${duration(us)}` : ""}.`,
    );
}

const lost = ({ isLost }: Route) => (isLost ? say`Its client got an error.` : say``);

/** What failed, in the past tense; its subject is the replica. */
const NOTICED: Record<string, string> = {
  unreachable: "could not be reached",
  closed: "broke the connection",
  refused: "accepted no requests",
  error: "answered with an error",
  silent: "fell silent",
  late: "missed a deadline",
};

/** What the request was about to get from the replica. */
const HOPS: Record<string, string> = {
  render: "the ids of its prompt",
  queue: "a place in a queue",
  prefill: "its prompt computed",
  export: "its KV",
  adopt: "its KV taken over",
  first_token: "its first token",
  stream: "its next token",
};

/** The failures between the decision before a decision and this one. */
export function failuresBefore({ request, index, at }: Route): Failure[] {
  const before = request.routes.findLast((other) => other.index < index);
  return request.failures.filter((one) => one.at <= at && one.at > (before?.at ?? -Infinity));
}

/** "At 3.2 s replica 1 broke the connection; Ada had 41 tokens." */
function failureWords(failure: Failure, { request, output }: Pick<Route, "request" | "output">) {
  const { replica, hop, noticed, us, at } = failure;
  const subject = replica ? `replica ${replica}` : "no replica";
  const broke = hop === "stream" && noticed === "error" ? "broke off with an error" : "";
  const verb = replica ? broke || (NOTICED[noticed] ?? noticed) : "accepted requests";
  const after = noticed === "late" && us ? ` of ${duration(us)}` : "";
  const had =
    hop === "stream" && output
      ? say`${tagOf(request)} had ${count(output, "token")}`
      : say`${tagOf(request)} waited for ${HOPS[hop] ?? hop}`;
  return say`At ${duration(at)} ${subject} ${verb}${after}; ${had}.`;
}

const failedBefore = (route: Route) =>
  failuresBefore(route).map((failure) => failureWords(failure, route));

/** The failures after the last decision of a request; the next decision tells the others. */
function failedAfter(route: Route) {
  const { request, index } = route;
  if (request.routes.some((other) => other.index > index)) return [];
  const later = request.failures.filter(({ at }) => at > route.at);
  return later.map((failure) =>
    failureWords(failure, { request, output: tokensBy(route, failure) }),
  );
}

/** How many tokens a replica had computed when it failed; 0 if the log does not say. */
function tokensBy({ run, its, output }: Route, { at }: Failure) {
  const span = run?.span(its);
  const steps = span?.tokenSteps.filter((step) => step > 0 && Number(run?.endOf(step)) <= at) ?? [];
  return steps.length ? output + steps.length : 0;
}

/** A request that goes on here after tokens that its client had from another replica: what it cost. */
export interface Continuation {
  output: number; // tokens that the client had
  computed: number | null; // prompt and output tokens that were computed again
  found: number | null; // those that were in the cache
  from: number | null; // when the client got its last token before (us)
  to: number | null; // and the next one
}

export function continuationOf(model: ClusterModel, route: Route): Continuation | null {
  const { output, request, index } = route;
  if (!output) return null;
  const found = model.delivered(route);
  const span = model.spanOf(route);
  const length = span ? route.prompt + output : null;
  const before = request.routes.findLast((other) => other.index < index && other.run);
  const steps = before?.run?.span(before.its)?.tokenSteps ?? [];
  const last = steps[output - (before?.output ?? 0) - 1];
  const from = last && before?.run ? before.run.endOf(last) : NaN;
  return {
    output,
    computed: length === null || found === null ? null : length - found,
    found,
    from: Number.isNaN(from) ? null : from,
    to: model.firstTokenOf(route),
  };
}

function continued(model: ClusterModel, route: Route) {
  const told = continuationOf(model, route);
  if (!told) return say``;
  const { output, found: cached, computed, from, to } = told;
  const subject = `Replica ${route.replica}`;
  const cost =
    computed === null
      ? `It goes on after ${count(output, "token")}`
      : cached
        ? `${subject} has ${cached} of the ${lengthWords(route)} in its cache and computes ${computed} again`
        : `${subject} computes the ${lengthWords(route)} again`;
  if (from === null || to === null) return say`${cost}.`;
  return say`${cost}; the next token comes ${duration(to - from)} after the last one.`;
}

/** The reason in a few words, for the table. */
export const reasonWords = (route: Route) =>
  isAlone(route) ? "the only one it could choose" : (REASONS[route.reason] ?? route.reason);

export const REASONS: Record<string, string> = {
  longest_prefix: "it is expected to have the longest prefix",
  prefix_on_its_way: "a request on its way there will compute the prefix",
  lowest_cost: "prefix and work together cost least there",
  least_work: "no replica has the prefix, and it costs least there",
  least_loaded: "no other has less to do",
  less_loaded_of_two: "no more requests than the other one that was drawn",
  least_cached: "it has the most room for a new prefix",
  load_unbalanced: "the loads differ too much for prefixes to count",
  random: "chosen at random",
  next_in_turn: "it is next in turn",
  pinned: "the session belongs to it",
};
