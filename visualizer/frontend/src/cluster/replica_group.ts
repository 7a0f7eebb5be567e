/**
 * The lanes of one replica: its name and seats, its evictions, a lane per seat, and its waiting requests. All of its
 * runs are in the same lanes, one after the other; the gutter is about the one at the cursor. The ground is grey while
 * the replica is not there, and crossed by lines while it is ejected.
 */

import { describeLane } from "../board/descriptions.ts";
import { Part } from "../board/part.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, plural, pointIn } from "../drawing/html.ts";
import { formsOf } from "../drawing/lane.ts";
import { laneAt, occupant, type Packing, packLanes } from "../drawing/lane_packing.ts";
import { longestQueue } from "../drawing/strip.ts";
import { type Axis, type Scale, timeScale } from "../drawing/time_axis.ts";
import { BLEED, drawTimeline, HEADROOM, type TimelineScene } from "../drawing/timeline.ts";
import { bandHeight, drawBand } from "../drawing/waiting_band.ts";
import type { Frame } from "../model/frame.ts";
import type { Model } from "../model/model.ts";
import { presenceWords, queueAt, seatsAt } from "./cluster_words.ts";
import type { Run } from "./replica.ts";
import type { ReplicaBoard } from "./replica_board.ts";

/** a run in the lanes; `scene` is null while it is out of view */
type DrawnRun = { run: Run; axis: Axis; packing: Packing; scene: TimelineScene | null };

export const HEAD = 20; // px
const STACK = 12; // px for waiting requests
const GAP = 10; // px below it
const TRIANGLE = 7;

export class ReplicaGroup extends Part<ReplicaBoard> {
  runs: DrawnRun[] = [];
  scrolled = 0;
  /** Its top in the picture. */
  top = 0;
  rows = 0;
  pitch = 22;
  name = h("button", {
    "data-act": "open-replica",
    title: "Open the board of this replica",
    click: () => this.board.cluster.openReplica(this.replica),
  });
  seats = h("span.count.small.muted");
  evictions = h("canvas", { role: "img" });
  lanes = h("canvas", { role: "img" });
  band = h("canvas", { role: "img" });
  painters = [this.evictions, this.lanes, this.band].map((one) => new CanvasPainter(one));
  spacer = h("div", this.lanes);
  scroller = h("div.lanes", { scroll: () => this.#scroll() }, this.spacer);
  element: HTMLElement;
  hasQueue = false;
  viewHeight = 0;

  constructor(board: ReplicaBoard) {
    super(board);
    const { cluster, replica } = board;
    this.element = h(
      "section.replica",
      { "aria-label": `Replica ${replica.id}`, "data-replica": replica.id },
      h("h2", this.evictions, h("span", this.name, this.seats)),
      this.scroller,
      this.band,
    );
    cluster.scrub(this.band);
    cluster.scrub(this.lanes, (event) => {
      const { span, run } = this.placeAt(event) ?? {};
      if (span) board.select(span.id, run);
      return !!span;
    });
    cluster.tooltip.listen(
      this.lanes,
      (event) => this.placeAt(event),
      (place) => describeLane(place.run.model, place.run.stepAt(cluster.state.at), place, true),
      ({ span }) => !!span,
    );
  }

  get replica() {
    return this.board.replica;
  }

  #scroll() {
    this.scrolled = this.scroller.scrollTop;
    this.board.cluster.redraw();
  }

  /** The lanes that requests need: seats that none has taken only while there is room. */
  pack(isCrowded: boolean) {
    this.runs = this.replica.runs.flatMap((run) =>
      run.axis ? { run, axis: run.axis, packing: packLanes(run.model), scene: null } : [],
    );
    const rows = this.runs.map(({ packing: { lanes } }) =>
      isCrowded ? lanes.findLastIndex((lane) => lane.length) + 1 : lanes.length,
    );
    this.rows = Math.max(Number(isCrowded), ...rows);
    this.hasQueue = this.runs.some(({ run }) => longestQueue(run.model) > 0);
    return this.rows;
  }

  /** @param most lanes visible at once */
  layout(top: number, pitch: number, most: number) {
    this.top = top;
    this.pitch = pitch;
    this.viewHeight = Math.min(this.rows, most) * pitch;
    const { hasAxis } = this;
    this.scroller.hidden = !hasAxis;
    this.band.hidden = !hasAxis || !this.hasQueue;
    this.spacer.style.height = `${this.rows * pitch + HEADROOM}px`;
    this.scroller.style.height = `${this.viewHeight + HEADROOM}px`;
    if (this.rows > most) this.scroller.tabIndex = 0;
    else this.scroller.removeAttribute("tabindex");
    for (const painter of this.painters) painter.forget();
  }

  get hasAxis() {
    return this.runs.length > 0;
  }

  get height() {
    if (!this.hasAxis) return HEAD + GAP;
    const band = this.hasQueue ? bandHeight(STACK) : 0;
    return HEAD + HEADROOM + this.viewHeight + band + GAP;
  }

  /** The lane of a request in a run, or null. */
  #laneIn(run: Run | null | undefined, its: number | null) {
    const drawn = this.runs.find((one) => one.run === run);
    return drawn ? laneAt(drawn.packing, drawn.run.span(its)?.index) : null;
  }

  /** The middle of a request's lane in the picture, or null. */
  laneY(run: Run | null | undefined, its: number | null) {
    const lane = this.#laneIn(run, its);
    if (lane == null) return null;
    const y = (lane + 1) * this.pitch - formsOf(this.pitch).below - 5 - this.scrolled;
    return this.top + HEAD + HEADROOM + Math.min(Math.max(y, 0), this.viewHeight);
  }

  /** The line below the waiting requests in the picture. */
  get queueY() {
    return this.top + this.height - GAP - (this.hasQueue ? 4 : 0);
  }

  /** Scrolls to the selected request's lane. */
  reveal() {
    const lane = this.#laneIn(this.board.run, this.board.selected);
    if (lane == null || !this.viewHeight) return;
    const top = lane * this.pitch;
    if (top >= this.scrolled && top + this.pitch <= this.scrolled + this.viewHeight) return;
    this.scroller.scrollTop = top - this.viewHeight / 2;
    this.scrolled = this.scroller.scrollTop;
  }

  draw() {
    const { cluster } = this.board;
    const { width, left, right, theme, state } = cluster;
    this.#write();
    if (!this.hasAxis) return;
    const [evictions, lanes, band] = this.painters;
    const begin = (painter: CanvasPainter, height: number) =>
      painter.begin(width, height, 1, theme, BLEED);
    begin(evictions, HEAD);
    begin(lanes, this.viewHeight + HEADROOM).context.translate(0, HEADROOM);
    begin(band, bandHeight(STACK));
    this.#drawPresence(lanes, timeScale(state.view, left, right, cluster.axis));
    for (const [index, drawn] of this.runs.entries()) {
      const { from, to } = this.#spanOf(index);
      const isNow = drawn.run === this.board.run;
      drawn.scene = null;
      if (!isNow && (to < state.view.from || from > state.view.to)) continue;
      const scene = this.#sceneOf(drawn, index, isNow);
      drawn.scene = scene;
      this.#drawEvictions(evictions, scene.scale, drawn.run);
      const { scale } = scene;
      const begins = this.runs.length > 1 ? Math.max(scale.at(from), left - 1) : left - 1;
      const ends = Math.min(scale.at(to), width + BLEED);
      const parts = [[begins, ends]];
      if (isNow && this.board.isThere) parts.push([-BLEED, left - 1]); // the gutter
      for (const [x, end] of parts) {
        if (end <= x) continue;
        const high = scene.viewHeight + HEADROOM;
        lanes.clipped(x, -HEADROOM, end - x, high, () => drawTimeline(lanes, scene));
        if (this.hasQueue)
          band.clipped(x, 0, end - x, bandHeight(STACK), () =>
            drawBand(band, { ...scene, stack: STACK }),
          );
      }
    }
    if (this.hasQueue) band.text("waiting", 0, bandHeight(STACK) - 3, { color: theme.muted });
  }

  /** The time of a run in the lanes: the first has all before it, and the last all after it. */
  #spanOf(index: number) {
    const from = index ? this.runs[index].axis.from : -Infinity;
    return { from, to: this.runs[index + 1]?.axis.from ?? Infinity };
  }

  #sceneOf({ run, axis, packing }: DrawnRun, index: number, isNow: boolean): TimelineScene {
    const { board } = this;
    const { cluster } = board;
    const { width, left, right, state } = cluster;
    const { model } = run;
    const { at } = state;
    const frame = isNow ? board.frame : null;
    const isOver = at >= axis.end(model.lastStep);
    const isIdle = frame && at >= axis.end(frame.step) && !frame.running.length;
    // Before its first step, between two steps of an idle engine, and once it has ended, no lane is taken.
    const before = model.firstStep - 1;
    const step =
      at < axis.from || isIdle
        ? before
        : frame && board.isThere
          ? frame.step
          : isOver
            ? model.lastStep + 1
            : before;
    return {
      model,
      frame: frame ?? silent(model),
      narrow: cluster.narrow,
      width,
      step,
      at,
      selected: board.selectedIn(run),
      untouched: !state.touched,
      still: `${index} ${model.events.length} ${state.view.from} ${state.view.to} ${left}`,
      scale: timeScale(state.view, left, right, { ...axis, ...cluster.extent }),
      packing,
      forks: [],
      laneHeight: this.pitch,
      scroll: this.scrolled,
      viewHeight: this.viewHeight,
      columns: { stateAt: left - 4, end: left - 4 },
    };
  }

  /** The ground of the time in which the replica was not there, or got no new requests. */
  #drawPresence(painter: CanvasPainter, scale: Scale) {
    const { theme } = painter;
    const { stays, ejections, deaths } = this.replica;
    const paint = (from: number, to: number, fill: string | CanvasPattern) => {
      const x = Math.max(scale.left, scale.at(from));
      const end = Math.min(scale.right, scale.at(to));
      if (end > x) painter.fill(x, -HEADROOM, end - x, this.viewHeight + HEADROOM, fill);
    };
    let gone = -Infinity;
    for (const { from, to } of stays) {
      paint(gone, from, theme.band);
      gone = to ?? Infinity;
    }
    paint(gone, Infinity, theme.band);
    for (const { from, to } of deaths) paint(from, to ?? Infinity, theme.band);
    for (const { from, to } of ejections)
      paint(from, to ?? Infinity, painter.hatch(theme.rule, 1.4));
  }

  /** A triangle at each step with an eviction. */
  #drawEvictions(painter: CanvasPainter, scale: Scale, { model }: Run) {
    const { measures, firstStep } = model;
    const { theme } = painter;
    let end = -Infinity;
    for (let step = scale.first; step <= scale.last; step += 1) {
      const x = scale.x(step);
      if (!measures.evicted.at(step - firstStep) || x < scale.left || x < end) continue;
      painter.tip(x, HEAD - 4, "down", theme.ink, TRIANGLE);
      painter.tip(x, HEAD - 6, "down", theme.ground, TRIANGLE - 4);
      end = x + TRIANGLE;
    }
  }

  #write() {
    const { replica, cluster, isThere } = this.board;
    const { at } = cluster.state;
    this.name.textContent = `Replica ${replica.id}`;
    const { taken } = seatsAt(replica, at);
    const queue = queueAt(replica, at);
    this.seats.textContent = presenceWords(cluster.model, replica, at);
    const left = !isThere && replica.leftBy(at) ? "true" : "";
    Object.assign(this.element.dataset, {
      seats: taken,
      waiting: queue,
      left,
      there: isThere,
      ejected: replica.ejectionAt(at) ? "true" : "",
      runs: replica.runs.length,
    });
    const shown = this.runs.flatMap(({ packing }) => packing.lanes.flat()).length;
    this.lanes.setAttribute(
      "aria-label",
      `Lanes of replica ${replica.id}: ${plural(shown, "request")}`,
    );
    this.band.setAttribute("aria-label", `${queue} waiting on replica ${replica.id}`);
    this.evictions.setAttribute("aria-label", `Evictions on replica ${replica.id}`);
  }

  /** The run, the step, and the request in whose lane the pointer is. */
  placeAt(event: MouseEvent) {
    const [left, top] = pointIn(this.lanes, event);
    const x = left - BLEED;
    const y = top - HEADROOM + this.scrolled;
    const { cluster, run: now } = this.board;
    const { scale: whole } = cluster;
    const inPlot = x >= whole.left - 2 && x <= whole.right + 6;
    const time = whole.placeAt(x);
    const index = inPlot
      ? this.runs.findLastIndex((_, i) => this.#spanOf(i).from <= time)
      : this.runs.findIndex(({ run }) => run === now);
    const { run, scene, packing } = this.runs[index] ?? {};
    if (!run || !scene || !packing) return null;
    const { firstStep, lastStep } = run.model;
    const step = Math.min(Math.max(scene.scale.stepAt(x), firstStep), lastStep);
    const lane = packing.lanes[Math.floor(y / this.pitch)];
    const stay = lane?.length ? occupant(lane, inPlot ? step : scene.step) : null;
    const isThere = stay && step >= stay.from - 1 && step <= stay.to + 4;
    const span = stay && (isThere || !inPlot) ? run.model.requests[stay.index] : null;
    return { run, step, inPlot, span };
  }
}

/** The frame of a run that is not at the cursor: the gutter and the arrows are not about it. */
const silent = (model: Model) =>
  ({
    model,
    step: model.lastStep,
    story: { preemptions: [] },
    phase: () => ({ kind: "", words: "" }),
  }) as unknown as Frame;
