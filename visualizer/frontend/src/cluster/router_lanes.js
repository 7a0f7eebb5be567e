/**
 * The router's rows: one per replica, with each request at the time of its decision.
 *
 *   mark       the request
 *   outline    its predicted hit; its height is the share of the longest prompt
 *   hatching   the delivered hit
 *   no bar     no hit was predicted: the load decided
 *   cross      the replica ended before the request did
 *
 * Where decisions are close together, marks become ticks and names are left out.
 *
 * @typedef {object} Arrival  px
 * @property {Route} route
 * @property {number} x
 * @property {number} base     y of the row's line
 * @property {number} mark     width of the mark
 * @property {number} bar      x of the bar
 * @property {number} barWidth 0: there is none
 * @property {number} predicted  height
 * @property {number} delivered  height
 * @property {boolean} isNamed
 *
 * @typedef {object} RouterScene
 * @property {ClusterModel} model
 * @property {Replica[]} shown
 * @property {Scale} scale
 * @property {number} pitch
 * @property {Route | null} route  the selected one
 * @property {number} at
 * @property {boolean} untouched
 */

/** @import { CanvasPainter } from "../drawing/canvas_painter.js" */
/** @import { Scale } from "../drawing/time_axis.js" */
/** @import { ClusterModel, Route } from "./cluster_model.js" */
/** @import { Replica } from "./replica.js" */
import { AFTER } from "../drawing/cursor.js";
import { predictedHit } from "./cluster_facts.js";

export const ROUTER_TOP = 18; // px above the first row
const BOLD = { size: 11, bold: true };
const MARK = 11;
const BAR = 7;
const TICK = 2;

/** The height of a row, by the number of rows. @param {number} rows */
export const routerPitch = (rows) => (rows <= 3 ? 35 : rows <= 5 ? 30 : 25);

/**
 * Where each decision in view is drawn. `measure` is the width of a name.
 *
 * @param {RouterScene} scene @param {(name: string) => number} measure
 * @returns {Arrival[]}
 */
export function arrivals({ model, shown, scale, pitch, route: selected }, measure) {
  const tallest = pitch - 13;
  const longest = Math.max(1, ...model.routes.map(({ prompt }) => prompt));
  return shown.flatMap((replica, row) => {
    const base = ROUTER_TOP + (row + 1) * pitch - 6;
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

/** Draws the rows. @param {CanvasPainter} painter @param {RouterScene} scene @param {Arrival[]} items */
export function drawRouter(painter, scene, items) {
  const { shown, scale, pitch, at, untouched, route } = scene;
  const { rule, muted } = painter.theme;
  shown.forEach(({ id }, row) => {
    const base = ROUTER_TOP + (row + 1) * pitch - 6;
    const name = painter.cut(`replica ${id}`, scale.left - 8);
    painter.text(name, 0, base - 1, { color: muted });
    painter.line(scale.left, base + 0.5, scale.right, base + 0.5, rule);
  });
  const ordered = items.filter((item) => item.route !== route);
  ordered.push(...items.filter((item) => item.route === route));
  for (const item of ordered)
    painter.faded(!untouched && item.route.at > at ? AFTER : 1, () =>
      drawArrival(painter, scene, item),
    );
}

/** @param {CanvasPainter} painter @param {RouterScene} scene @param {Arrival} item */
function drawArrival(painter, { model, route: selected }, item) {
  const { route, x, base, mark, bar, barWidth, predicted, delivered, isNamed } = item;
  const { theme } = painter;
  const { request } = route;
  const height = Math.min(MARK, Math.max(mark, 6));
  if (route === selected) painter.fill(x - 3, base - MARK - 3, mark + 6, MARK + 3, theme.ground);
  painter.mark(x, base - height, mark, height, model.laneOfRoute(route));
  if (model.isLost(route)) {
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

/** The decision under a point, or undefined. @param {Arrival[]} items @param {number} x @param {number} y @param {number} pitch */
export function arrivalAt(items, x, y, pitch) {
  const near = items.filter(({ base }) => y <= base + 5 && y > base + 5 - pitch);
  const hit = near.filter((item) => x >= item.x - 3 && x <= item.bar + item.barWidth + 3);
  return hit.sort((a, b) => Math.abs(a.x - x) - Math.abs(b.x - x))[0];
}
