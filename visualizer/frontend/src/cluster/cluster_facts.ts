/**
 * The figures of a cluster run: how many requests, how fast, how much was found in the caches, and how often the router
 * was right. `visualizer/comparing/compared_clusters.py` has the same.
 */

import { type Percentile, percentiles } from "../model/run_summary.ts";
import type { ClusterModel, Route } from "./cluster_model.ts";

interface ClusterFacts {
  requests: number;
  ttft: Percentile[];
  prompt: number; // prompt tokens of the admitted requests, and those that a client had before
  predicted: number; // those that the router expected in the cache
  delivered: number; // those that were found there
  judged: number; // decisions with a prediction whose delivered hit is known
  wrong: Route[]; // of these, those with another hit than predicted
  byPrefix: number; // decisions for a replica with a predicted hit
  lost: number;
  retried: number;
  continued: number; // those that another replica continued after tokens that the client had
}

/** The facts of models, and the number of lines that they were computed from. */
const known: WeakMap<ClusterModel, { lines: number; facts: ClusterFacts }> = new WeakMap();

export function clusterFacts(model: ClusterModel): ClusterFacts {
  const { lineCount: lines } = model;
  const kept = known.get(model);
  if (kept?.lines === lines) return kept.facts;
  const facts = compute(model);
  known.set(model, { lines, facts });
  return facts;
}

function compute(model: ClusterModel): ClusterFacts {
  const { requests, routes } = model;
  const ttfts: Map<number, number> = new Map();
  for (const request of requests) {
    const ttft = model.ttft(request);
    if (ttft !== null) ttfts.set(ttft, (ttfts.get(ttft) ?? 0) + 1);
  }
  const sums = { prompt: 0, predicted: 0, delivered: 0, judged: 0, byPrefix: 0 };
  const wrong: Route[] = [];
  for (const route of routes) {
    const predicted = predictedHit(route);
    if (predicted > 0) sums.byPrefix += 1;
    const delivered = model.delivered(route);
    // Without the prompt's tokens there is nothing to predict.
    if (delivered === null || !route.prompt) continue;
    sums.prompt += lengthOf(route);
    sums.predicted += predicted;
    sums.delivered += delivered;
    if (!Object.keys(route.hits).length) continue; // the policy predicts nothing
    sums.judged += 1;
    if (delivered !== expectedHit(route)) wrong.push(route);
  }
  return {
    requests: requests.length,
    ttft: percentiles(ttfts),
    ...sums,
    wrong,
    lost: requests.filter(({ losses }) => losses.length).length,
    retried: requests.filter(({ routes: all }) => all.some(({ attempt }) => attempt > 1)).length,
    continued: requests.filter(({ routes: all }) => all.some(({ output }) => output > 0)).length,
  };
}

/** What a replica has to compute or to find: the prompt and, of a request that is continued, its output. */
export const lengthOf = ({ prompt, output }: Route) => prompt + output;

/** The prompt tokens that the router expected in the cache of the replica it chose. */
export const predictedHit = ({ hits, replica }: Route) => hits[replica] ?? 0;

/** The same, or what was moved there before the request arrived, if that is more. */
export function expectedHit(route: Route) {
  const { request, replica } = route;
  const moved = request.moves.filter(({ target }) => target === replica);
  return Math.max(predictedHit(route), ...moved.map(({ tokens }) => tokens));
}
