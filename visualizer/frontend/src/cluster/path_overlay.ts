/**
 * What crosses the rows of the picture: the cursor with its time, the selected request's path from the router to its
 * lane, the moves of its blocks from one replica to another, and where one replica went on for another.
 */

import { Part } from "../board/part.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, plural } from "../drawing/html.ts";
import type { Scale } from "../drawing/time_axis.ts";
import { BLEED } from "../drawing/timeline.ts";
import { duration } from "../model/duration.ts";
import type { ClusterBoard } from "./cluster_board.ts";
import type { Move, Route } from "./cluster_model.ts";
import { continuationOf, failuresBefore, wasSeen } from "./cluster_words.ts";
import { HEAD } from "./replica_group.ts";

const DIRECT = 10; // px between decision and admission that need no detour
const LINE = 2.5;
const BOLD = { size: 11, bold: true };
const FLAG = 16; // px
const AT_ONCE = 1e6; // us: a replica that is back so soon was not away

const byTime = (a: { at: number }, b: { at: number }) => a.at - b.at;

export class PathOverlay extends Part<ClusterBoard> {
  canvas = h("canvas.path", { "aria-hidden": "true" });
  painter = new CanvasPainter(this.canvas);

  draw(scale: Scale, height: number) {
    const { board: cluster, painter } = this;
    const { width, theme, route, selected } = cluster;
    painter.begin(width, height + FLAG, 1, theme, BLEED).context.translate(0, FLAG);
    this.canvas.style.top = `${-FLAG}px`;
    this.#drawEnds(scale);
    this.#drawCursor(scale, height);
    this.canvas.dataset.path = "";
    this.canvas.dataset.failover = "";
    painter.clipped(scale.left - 2, -FLAG, scale.right - scale.left + 12, height + FLAG, () => {
      for (const one of selected?.routes ?? []) this.#drawPath(scale, one, one === route);
      for (const move of selected?.moves ?? []) this.#drawMove(scale, move);
      for (const one of selected?.routes.slice(1) ?? []) this.#drawFailover(scale, one);
    });
  }

  /** Where a replica left or was ejected, or its engine ended: a bar across its lanes, with the reason or a word. */
  #drawEnds(scale: Scale) {
    const { painter, board: cluster } = this;
    const { ink, ground } = painter.theme;
    for (const { replica, top, height } of cluster.groups) {
      const { stays, ejections, deaths } = replica;
      const marks = [
        ...stays.flatMap(({ to, why }, i) => {
          const back = stays[i + 1]?.from ?? Infinity;
          const word = back < (to ?? back) + AT_ONCE ? "rejoined" : "left";
          return to === null ? [] : { at: to, why, word, isEnd: true };
        }),
        ...ejections.map(({ from, why }) => ({
          at: from,
          why: `ejected: ${why}`,
          word: "ejected",
          isEnd: false,
        })),
        ...deaths.map(({ from, why }) => ({ at: from, why, word: "engine ended", isEnd: false })),
      ].sort(byTime);
      const rows = [-Infinity, -Infinity, -Infinity]; // where the words in each row end
      marks.forEach(({ at, why, word, isEnd }, i) => {
        const x = scale.at(at);
        if (x < scale.left || x > scale.right) return;
        painter.fill(x, top + HEAD, 2.5, height - HEAD - 8, ink);
        // The reason stands between two bars if it fits there, or a word; in front of the first bar are lanes.
        const before = Math.max(scale.left, scale.at(marks[i - 1]?.at ?? -Infinity));
        const after = Math.min(scale.right, scale.at(marks[i + 1]?.at ?? Infinity));
        const fits = (room: number) => (painter.measure(why, BOLD) < room - 10 ? why : word);
        const [inFront, behind] = [fits(i ? x - before : 0), fits(after - x)];
        const isLeft = isEnd ? inFront === why : painter.measure(behind, BOLD) > after - x - 10;
        const words = isLeft ? inFront : behind;
        const left = isLeft ? x - 5 - painter.measure(words, BOLD) : x + 7;
        const row = Math.max(
          rows.findIndex((end) => end < left),
          0,
        );
        painter.text(words, left, top + HEAD + 12 + 14 * row, { ...BOLD, halo: ground });
        rows[row] = left + painter.measure(words, BOLD) + 4;
      });
    }
  }

  #drawCursor(scale: Scale, height: number) {
    const { painter, board: cluster } = this;
    const { ink, ground } = painter.theme;
    const x = Math.round(scale.at(cluster.state.at)) + 0.5;
    if (x < scale.left - 1 || x > scale.right + 1) return;
    painter.faded(0.55, () => painter.line(x, 0, x, height, ink));
    const words = duration(cluster.state.at);
    const room = painter.measure(words, BOLD) + 14;
    const left = Math.min(Math.max(x - room / 2, 0), scale.right + 8 - room);
    painter.fill(left, -FLAG, room, FLAG, ink);
    painter.text(words, left + room / 2, -4, { ...BOLD, color: ground, align: "center" });
  }

  /** From the router's row to the lane, by way of the queue if it waited. */
  #drawPath(scale: Scale, route: Route, isChosen: boolean) {
    const { board: cluster } = this;
    const group = cluster.groups.find(({ replica }) => replica.id === route.replica);
    const row = cluster.shown.findIndex(({ id }) => id === route.replica);
    if (!group || row < 0) return;
    const x = scale.at(route.at) + 5;
    const start = cluster.rowY(row);
    const [admission] = cluster.model.spanOf(route)?.admissions ?? [];
    const run = cluster.model.runOf(route);
    const lane = group.laneY(run, route.its);
    const admitted = admission && run ? run.startOf(admission.step) : NaN;
    const end = scale.at(admitted);
    const points: [x: number, y: number][] = [[x, start]];
    let label = "";
    if (lane === null || Number.isNaN(end)) points.push([x, group.queueY]);
    else if (end - x < DIRECT) points.push([x, lane], [Math.max(end + 1, x + 1), lane]);
    else {
      points.push([x, group.queueY], [end - 3, group.queueY], [end - 3, lane + 7]);
      const span = cluster.model.spanOf(route);
      const where = span && wasSeen(span) ? "in the queue" : "until its first step";
      label = `${duration(admitted - route.at)} ${where}`;
    }
    this.#stroke(points, isChosen ? LINE : 1.5, cluster.hueOf(route));
    if (label && isChosen) {
      const { painter } = this;
      painter.text(label, x + 6, group.queueY - 4, { ...BOLD, halo: painter.theme.ground });
    }
    if (isChosen) this.canvas.dataset.path = points.map((point) => point.map(Math.round)).join(" ");
  }

  /** From the lane at the replica that failed to the lane at the one that goes on, with what that cost. */
  #drawFailover(scale: Scale, route: Route) {
    const { board: cluster, painter } = this;
    const { model } = cluster;
    const failure = failuresBefore(route).at(-1);
    const before = route.request.routes.findLast(({ index }) => index < route.index) as Route;
    const told = continuationOf(model, route);
    if (!failure && !told) return;
    const [from, to] = [before, route].map((one) => {
      const group = cluster.groups.find(({ replica }) => replica.id === one.replica);
      return group && (group.laneY(model.runOf(one), one.its) ?? group.queueY);
    });
    if (from === undefined || to === undefined) return;
    const begins = told?.from ?? failure?.at ?? route.at;
    const ends = told?.to ?? route.at;
    const [x, end] = [scale.at(begins), scale.at(ends)];
    const { ground } = painter.theme;
    const hue = cluster.hueOf(route);
    painter.line(x, from, end, to, ground, 5);
    painter.line(x, from, end, to, hue, 2, [2, 3]);
    painter.tip(end, to + (to > from ? 1 : -1), to > from ? "down" : "up", hue, 7);
    this.canvas.dataset.failover = `${before.replica} ${route.replica} ${Math.round(begins)} ${Math.round(ends)}`;
    if (!told) return;
    const { from: last, to: next, output, computed } = told;
    const pause = last === null || next === null ? "" : `pause of ${duration(next - last)}`;
    const again = computed === null ? "" : `${plural(computed, "token")} again`;
    const parts = [`after ${plural(output, "token")}`, pause, again].filter(Boolean);
    const room = scale.right - scale.left - 8;
    const whole = parts.join(", ");
    const words = painter.measure(whole, BOLD) < room ? whole : pause;
    const width = painter.measure(words, BOLD);
    const middle = (x + end - width) / 2;
    const left = Math.min(Math.max(middle, scale.left + 4), scale.right - width - 4);
    const base = (from + to) / 2 + 4;
    painter.fill(left - 2, base - 10, width + 5, 13, ground);
    painter.text(words, left, base, BOLD);
  }

  #drawMove(scale: Scale, { source, target, at, us, blocks }: Move) {
    const { board: cluster, painter } = this;
    const { selected } = cluster;
    const ends = [source, target].map((id) => {
      const group = cluster.groups.find(({ replica }) => replica.id === id);
      const place = selected?.places.findLast(({ replica }) => replica === id);
      return group ? (group.laneY(place?.run, place?.its ?? null) ?? group.queueY) : null;
    });
    const [from, to] = ends;
    if (from === null || to === null) return;
    const [x, end] = [scale.at(at), scale.at(at + us)];
    const hue = painter.hue(cluster.model.laneOf(selected?.id ?? null));
    const down = to > from;
    painter.line(x, from, end, to, painter.theme.ground, 6);
    painter.line(x, from, end, to, hue, LINE, [5, 3]);
    painter.tip(end, to + (down ? 1 : -1), down ? "down" : "up", hue, 8);
    const words = `${plural(blocks, "block")} moved`;
    const [left, base] = [Math.max(x, end) + 6, (from + to) / 2 + 4];
    painter.fill(left - 2, base - 10, painter.measure(words, BOLD) + 5, 13, painter.theme.ground);
    painter.text(words, left, base, BOLD);
  }

  #stroke(points: [x: number, y: number][], width: number, hue: string) {
    const { context, theme } = this.painter;
    for (const [line, color] of [
      [width + 3, theme.ground],
      [width, hue],
    ] as [number, string][]) {
      context.strokeStyle = color;
      context.lineWidth = line;
      context.lineJoin = "round";
      context.beginPath();
      points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.stroke();
      context.lineJoin = "miter";
    }
    const [[fromX, fromY], [x, y]] = points.slice(-2);
    const direction = fromX !== x ? "right" : y > fromY ? "down" : "up";
    this.painter.tip(
      x + (fromX !== x ? 4 : 0),
      y + (direction === "down" ? 4 : direction === "up" ? -4 : 0),
      direction,
      hue,
      7,
    );
  }
}
