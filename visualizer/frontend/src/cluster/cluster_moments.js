/** Decisions worth a look, and the one that a cluster board opens with. */

/** @import { ClusterModel, Route } from "./cluster_model.js" */
import { expectedHit, predictedHit } from "./cluster_facts.js";

/**
 * How much there is to see: a prediction that was wrong, a request that was lost, sent again or moved.
 *
 * @param {ClusterModel} model @param {Route} route
 */
function scoreOf(model, route) {
  const { request, replica, attempt, prompt, hits } = route;
  const delivered = model.delivered(route);
  const isJudged = delivered !== null && Object.keys(hits).length > 0;
  const missing = isJudged ? Math.abs(expectedHit(route) - delivered) / prompt : 0;
  return (
    6 * Number(model.isLost(route)) +
    6 * Number(request.moves.some(({ source }) => source === replica)) +
    5 * Number(attempt > 1) +
    (missing ? 4 + 4 * missing : 0)
  );
}

/** The decisions worth a look, in order. @param {ClusterModel} model */
export function clusterMoments(model) {
  return model.routes.filter((route) => scoreOf(model, route) > 0);
}

/** The decision to open with: the one with the most to see, else the first with a hit. @param {ClusterModel} model */
export function openingRoute(model) {
  const { routes } = model;
  let best = null;
  let most = 0;
  for (const route of routes) {
    const score = scoreOf(model, route);
    if (score > most) [best, most] = [route, score];
  }
  return best ?? routes.find((route) => predictedHit(route) > 0) ?? routes[0] ?? null;
}
