/**
 * The router's rows: one per replica, with each request at the time of its decision.
 *
 *   mark       the request
 *   outline    its predicted hit; its height is the share of the longest prompt
 *   hatching   the delivered hit
 *   no bar     no hit was predicted: the load decided
 *   stroke     the request ended with an error there
 *   cross      a step on a request's way failed there
 *   no line    the replica is not there; dashes: it gets no new requests
 *
 * Where decisions are close together, marks become ticks and names are left out.
 */

import type { CanvasPainter } from "../drawing/canvas_painter.ts";
import { AFTER } from "../drawing/cursor.ts";
import type { Scale } from "../drawing/time_axis.ts";
import { lengthOf, predictedHit } from "./cluster_facts.ts";
import type { ClusterModel, Route } from "./cluster_model.ts";
import type { Interval, Replica } from "./replica.ts";

/** px */
export interface Arrival {
  route: Route;
  x: number;
  base: number; // y of the row's line
  mark: number; // width of the mark
  bar: number; // x of the bar
  barWidth: number; // 0: there is none
  predicted: number; // height
  delivered: number; // height
  isNamed: boolean;
}

interface RouterScene {
  model: ClusterModel;
  shown: Replica[];
  scale: Scale;
  pitch: number;
  route: Route | null; // the selected one
  at: number;
  untouched: boolean;
}

export const ROUTER_TOP = 18; // px above the first row
const BOLD = { size: 11, bold: true };
const MARK = 11;
const BAR = 7;
const TICK = 2;

/** The height of a row, by the number of rows. */
export const routerPitch = (rows: number) => (rows <= 3 ? 35 : rows <= 5 ? 30 : 25);

/** The line of a row. */
export const rowLine = (row: number, pitch: number) => ROUTER_TOP + (row + 1) * pitch - 6;

/** Where each decision in view is drawn. `measure` is the width of a name. */
export function arrivals(
  { model, shown, scale, pitch, route: selected }: RouterScene,
  measure: (name: string) => number,
): Arrival[] {
  const tallest = pitch - 13;
  const longest = Math.max(1, ...model.routes.map(lengthOf));
  return shown.flatMap((replica, row) => {
    const base = rowLine(row, pitch);
    const here = model.routes.filter(
      (route) =>
        route.replica === replica.id &&
        scale.at(route.at) >= scale.left - MARK &&
        scale.at(route.at) <= scale.right,
    );
    return here.map((route, i) => {
      const x = scale.at(route.at);
      const next = here[i + 1];
      const isSelected = route === selected;
      const room = isSelected ? Infinity : (next ? scale.at(next.at) : scale.right + 40) - x;
      const delivered = model.delivered(route) ?? 0;
      const hasBar = predictedHit(route) > 0 || delivered > 0;
      const mark = room >= MARK + BAR + 2 ? MARK : room >= MARK ? 6 : TICK;
      const barWidth = !hasBar ? 0 : mark === MARK ? BAR : room >= MARK ? 4 : TICK;
      const bar = x + mark + (mark === MARK ? 3 : 1);
      const end = hasBar ? bar + barWidth + 3 : x + mark + 3;
      return {
        route,
        x,
        base,
        mark,
        bar,
        barWidth,
        predicted: (predictedHit(route) / longest) * tallest,
        delivered: (delivered / longest) * tallest,
        isNamed: isSelected || measure(route.request.name) + end - x + 3 <= room,
      };
    });
  });
}

/** Draws the rows. */
export function drawRouter(painter: CanvasPainter, scene: RouterScene, items: Arrival[]) {
  const { shown, scale, pitch, at, untouched, route } = scene;
  const { rule, muted } = painter.theme;
  shown.forEach(({ id, stays, ejections }, row) => {
    const base = rowLine(row, pitch);
    const name = painter.cut(`replica ${id}`, scale.left - 8);
    painter.text(name, 0, base - 1, { color: muted });
    for (const stay of stays) drawPresence(painter, scale, stay, base + 0.5, rule);
    for (const ejection of ejections)
      drawPresence(painter, scale, ejection, base + 0.5, painter.theme.ground, [3, 4]);
  });
  const ordered = items.filter((item) => item.route !== route);
  ordered.push(...items.filter((item) => item.route === route));
  for (const item of ordered)
    painter.faded(!untouched && item.route.at > at ? AFTER : 1, () =>
      drawArrival(painter, scene, item),
    );
  drawFailures(painter, scene);
}

/** The line of a row while its replica is there, or the gaps in it while it is ejected. */
function drawPresence(
  painter: CanvasPainter,
  scale: Scale,
  { from, to }: Interval,
  y: number,
  color: string,
  dash: number[] = [],
) {
  const left = Math.max(scale.left, scale.at(from));
  const right = Math.min(scale.right, to === null ? scale.right : scale.at(to));
  if (right > left) painter.line(left, y, right, y, color, dash.length ? 2 : 1, dash);
}

/** A cross in the row of a replica at which a step on a request's way failed. */
function drawFailures(painter: CanvasPainter, scene: RouterScene) {
  const { model, shown, scale, pitch, route, at: now, untouched } = scene;
  const { ink, ground } = painter.theme;
  for (const { request, replica, at } of model.failures) {
    const x = scale.at(at);
    const row = shown.findIndex(({ id }) => id === replica);
    if (row < 0 || x < scale.left || x > scale.right) continue;
    const y = rowLine(row, pitch) - MARK / 2;
    const size = request === route?.request.id ? 5 : 3;
    painter.faded(!untouched && at > now ? AFTER : 1, () => {
      for (const [color, width] of [
        [ground, 4.5],
        [ink, 1.75],
      ] as const) {
        painter.line(x - size, y - size, x + size, y + size, color, width);
        painter.line(x - size, y + size, x + size, y - size, color, width);
      }
    });
  }
}

function drawArrival(
  painter: CanvasPainter,
  { model, route: selected }: RouterScene,
  item: Arrival,
) {
  const { route, x, base, mark, bar, barWidth, predicted, delivered, isNamed } = item;
  const { theme } = painter;
  const { request, isLost } = route;
  const height = Math.min(MARK, Math.max(mark, 6));
  if (route === selected) painter.fill(x - 3, base - MARK - 3, mark + 6, MARK + 3, theme.ground);
  painter.mark(x, base - height, mark, height, model.laneOfRoute(route));
  if (isLost) {
    painter.line(x, base - height, x + mark, base, theme.ground, 3);
    painter.line(x, base - height, x + mark, base, theme.ink, 1.5);
  }
  if (barWidth) {
    painter.fill(
      bar,
      base - Math.max(predicted, delivered),
      barWidth,
      Math.max(predicted, delivered),
      theme.ground,
    );
    if (delivered)
      painter.fill(bar, base - delivered, barWidth, delivered, painter.hatch(theme.hatch));
    if (predicted && barWidth > TICK)
      painter.frame(bar, base - predicted, barWidth, predicted, theme.ink);
    else if (predicted) painter.fill(bar, base - predicted, 1, predicted, theme.ink);
  }
  if (!isNamed) return;
  const end = barWidth ? bar + barWidth + 3 : x + mark + 3;
  painter.text(request.name, end, base - 2, { ...BOLD, halo: theme.ground });
}

/** The decision under a point, or undefined. */
export function arrivalAt(items: Arrival[], x: number, y: number, pitch: number) {
  const near = items.filter(({ base }) => y <= base + 5 && y > base + 5 - pitch);
  const hit = near.filter((item) => x >= item.x - 3 && x <= item.bar + item.barWidth + 3);
  return hit.sort((a, b) => Math.abs(a.x - x) - Math.abs(b.x - x))[0];
}
