/**
 * The figures of a cluster run: how many requests, how fast, how much was found in the caches, and how often the router
 * was right. `ClusterLog` in `engine/cluster/cluster_log.py` has the same.
 *
 * @typedef {object} ClusterFacts
 * @property {number} requests
 * @property {import("../model/run_summary.js").Percentile[]} ttft
 * @property {number} prompt      prompt tokens of the admitted requests
 * @property {number} predicted   those that the router expected in the cache
 * @property {number} delivered   those that were found there
 * @property {number} judged      decisions with a prediction whose delivered hit is known
 * @property {Route[]} wrong      of these, those with another hit than predicted
 * @property {number} byPrefix    decisions for a replica with a predicted hit
 * @property {number} lost
 * @property {number} retried
 */

/** @import { ClusterModel, Route } from "./cluster_model.js" */
import { percentiles } from "../model/run_summary.js";

/** The facts of models, and the number of lines that they were computed from. @type {WeakMap<ClusterModel, {lines: number, facts: ClusterFacts}>} */
const known = new WeakMap();

/** @param {ClusterModel} model @returns {ClusterFacts} */
export function clusterFacts(model) {
  const { lineCount: lines } = model;
  const kept = known.get(model);
  if (kept?.lines === lines) return kept.facts;
  const facts = compute(model);
  known.set(model, { lines, facts });
  return facts;
}

/** @param {ClusterModel} model @returns {ClusterFacts} */
function compute(model) {
  const { requests, routes } = model;
  /** @type {Map<number, number>} */
  const ttfts = new Map();
  for (const request of requests) {
    const ttft = model.ttft(request);
    if (ttft !== null) ttfts.set(ttft, (ttfts.get(ttft) ?? 0) + 1);
  }
  const sums = { prompt: 0, predicted: 0, delivered: 0, judged: 0, byPrefix: 0 };
  /** @type {Route[]} */
  const wrong = [];
  for (const route of routes) {
    const predicted = predictedHit(route);
    if (predicted > 0) sums.byPrefix += 1;
    const delivered = model.delivered(route);
    if (delivered === null) continue;
    sums.prompt += route.prompt;
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
  };
}

/** The prompt tokens that the router expected in the cache of the replica it chose. @param {Route} route */
export const predictedHit = ({ hits, replica }) => hits[replica] ?? 0;

/** The same, or what was moved there before the request arrived, if that is more. @param {Route} route */
export function expectedHit(route) {
  const { request, replica } = route;
  const moved = request.moves.filter(({ target }) => target === replica);
  return Math.max(predictedHit(route), ...moved.map(({ tokens }) => tokens));
}
