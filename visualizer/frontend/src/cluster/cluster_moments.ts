/** Decisions worth a look, and the one that a cluster board opens with. */

import { expectedHit, lengthOf, predictedHit } from "./cluster_facts.ts";
import type { ClusterModel, Route } from "./cluster_model.ts";

/** How much there is to see: a prediction that was wrong, a request that was lost, sent again, continued or moved. */
function scoreOf(model: ClusterModel, route: Route) {
  const { request, replica, attempt, prompt, hits, output } = route;
  const delivered = model.delivered(route);
  const isJudged = delivered !== null && prompt > 0 && Object.keys(hits).length > 0;
  const missing = isJudged ? Math.abs(expectedHit(route) - delivered) / lengthOf(route) : 0;
  return (
    10 * Number(route.isLost) +
    6 * Number(request.moves.some(({ source }) => source === replica)) +
    9 * Number(attempt > 1) +
    3 * Number(output > 0) +
    (missing ? 4 + 4 * missing : 0)
  );
}

/** The decisions worth a look, in order. */
export function clusterMoments(model: ClusterModel) {
  return model.routes.filter((route) => scoreOf(model, route) > 0);
}

/** The decision to open with: the one with the most to see, else the first with a hit. */
export function openingRoute(model: ClusterModel) {
  const { routes } = model;
  let best = null;
  let most = 0;
  for (const route of routes) {
    const score = scoreOf(model, route);
    if (score > most) [best, most] = [route, score];
  }
  return best ?? routes.find((route) => predictedHit(route) > 0) ?? routes[0] ?? null;
}
