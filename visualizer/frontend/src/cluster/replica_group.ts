/** The lanes of one replica: its name and seats, its evictions, a lane per seat, and its waiting requests. */

import { describeLane } from "../board/descriptions.ts";
import { Part } from "../board/part.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, plural, pointIn } from "../drawing/html.ts";
import { formsOf } from "../drawing/lane.ts";
import { laneAt, occupant, type Packing, packLanes } from "../drawing/lane_packing.ts";
import { longestQueue } from "../drawing/strip.ts";
import { type Scale, timeScale } from "../drawing/time_axis.ts";
import { BLEED, drawTimeline, HEADROOM, type TimelineScene } from "../drawing/timeline.ts";
import { bandHeight, drawBand } from "../drawing/waiting_band.ts";
import { duration } from "../model/duration.ts";
import { seatsAt } from "./cluster_words.ts";
import type { ReplicaBoard } from "./replica_board.ts";

export const HEAD = 20; // px
const STACK = 12; // px for waiting requests
const GAP = 10; // px below it
const TRIANGLE = 7;

export class ReplicaGroup extends Part<ReplicaBoard> {
  scene: TimelineScene | null = null;
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
  packing!: Packing;
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
      const span = this.placeAt(event)?.span;
      if (span) board.select(span.id);
      return !!span;
    });
    cluster.tooltip.listen(
      this.lanes,
      (event) => this.placeAt(event),
      (place) => describeLane(board.model, board.step, place, true),
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
    const { model, hasSteps } = this.replica;
    this.packing = hasSteps ? packLanes(model) : { lanes: [], stays: [] };
    const { lanes } = this.packing;
    const used = lanes.findLastIndex((lane) => lane.length) + 1;
    this.rows = isCrowded ? Math.max(1, used) : lanes.length;
    this.hasQueue = hasSteps && longestQueue(model) > 0;
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
    return this.replica.axis !== null;
  }

  get height() {
    if (!this.hasAxis) return HEAD + GAP;
    const band = this.hasQueue ? bandHeight(STACK) : 0;
    return HEAD + HEADROOM + this.viewHeight + band + GAP;
  }

  /** The middle of a request's lane in the picture, or null. */
  laneY(its: number | null) {
    const lane = laneAt(this.packing, this.replica.span(its)?.index);
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
    const lane = laneAt(this.packing, this.replica.span(this.board.selected)?.index);
    if (lane == null || !this.viewHeight) return;
    const top = lane * this.pitch;
    if (top >= this.scrolled && top + this.pitch <= this.scrolled + this.viewHeight) return;
    this.scroller.scrollTop = top - this.viewHeight / 2;
    this.scrolled = this.scroller.scrollTop;
  }

  draw() {
    const { board, packing } = this;
    const { cluster, model } = board;
    const { axis } = this.replica;
    const { width, left, right, theme, state } = cluster;
    this.#write();
    if (!axis) return;
    const scale = timeScale(state.view, left, right, { ...axis, ...cluster.extent });
    const { frame } = board;
    const isIdle = state.at >= axis.end(frame.step) && !frame.running.length;
    // Before the first step, and between two steps of an idle replica, no lane is taken.
    const step = state.at < axis.from || isIdle ? model.firstStep - 1 : frame.step;
    const [evictions, lanes, band] = this.painters;
    this.scene = {
      model,
      frame,
      narrow: cluster.narrow,
      width,
      step,
      at: state.at,
      selected: board.selected,
      untouched: !state.touched,
      still: `${model.events.length} ${state.view.from} ${state.view.to} ${left}`,
      scale,
      packing,
      forks: [],
      laneHeight: this.pitch,
      scroll: this.scrolled,
      viewHeight: this.viewHeight,
      columns: { stateAt: left - 4, end: left - 4 },
    };
    const { scene } = this;
    const begin = (painter: CanvasPainter, height: number) =>
      painter.begin(width, height, 1, theme, BLEED);
    this.#drawEvictions(begin(evictions, HEAD), scale);
    begin(lanes, scene.viewHeight + HEADROOM).context.translate(0, HEADROOM);
    drawTimeline(lanes, scene);
    if (!this.hasQueue) return;
    drawBand(begin(band, bandHeight(STACK)), { ...scene, stack: STACK });
    band.text("waiting", 0, bandHeight(STACK) - 3, { color: theme.muted });
  }

  /** A triangle at each step with an eviction. */
  #drawEvictions(painter: CanvasPainter, scale: Scale) {
    const { measures, firstStep } = this.replica.model;
    const { theme } = painter;
    let end = -Infinity;
    for (let step = scale.first; step <= scale.last; step += 1) {
      const x = scale.x(step);
      if (!measures.evicted[step - firstStep] || x < scale.left || x < end) continue;
      painter.tip(x, HEAD - 4, "down", theme.ink, TRIANGLE);
      painter.tip(x, HEAD - 6, "down", theme.ground, TRIANGLE - 4);
      end = x + TRIANGLE;
    }
  }

  #write() {
    const { replica, cluster } = this.board;
    const { at } = cluster.state;
    this.name.textContent = `Replica ${replica.id}`;
    const role = replica.role && replica.role !== "both" ? `${replica.role}, ` : "";
    const left = replica.left && at >= replica.left.at ? replica.left : null;
    const { taken, all } = seatsAt(replica, at);
    const queue = this.hasAxis ? this.#queueAt(at) : 0;
    const words = left
      ? `${role}left at ${duration(left.at)}: ${left.why}`
      : all
        ? `${role}${taken} of ${plural(all, "seat")}${queue ? `, ${queue} waiting` : ""}`
        : `${role}not started`;
    const none = this.hasAxis
      ? ""
      : replica.hasSteps
        ? "; its log has no times"
        : "; no request yet";
    this.seats.textContent = words + none;
    Object.assign(this.element.dataset, { seats: taken, waiting: queue, left: left ? "true" : "" });
    const shown = this.packing.lanes.flat().length;
    this.lanes.setAttribute(
      "aria-label",
      `Lanes of replica ${replica.id}: ${plural(shown, "request")}`,
    );
    this.band.setAttribute("aria-label", `${queue} waiting on replica ${replica.id}`);
    this.evictions.setAttribute("aria-label", `Evictions on replica ${replica.id}`);
  }

  #queueAt(at: number) {
    const { axis, model } = this.replica;
    if (!axis || at < axis.from) return 0;
    return model.measures.waiting[this.replica.stepAt(at) - model.firstStep];
  }

  /** The step, and the request in whose lane the pointer is. */
  placeAt(event: MouseEvent) {
    const { scene, packing, replica } = this;
    if (!scene) return null;
    const [left, top] = pointIn(this.lanes, event);
    const x = left - BLEED;
    const y = top - HEADROOM + this.scrolled;
    const { scale } = scene;
    const inPlot = x >= scale.left - 2 && x <= scale.right + 6;
    const { firstStep, lastStep } = replica.model;
    const step = Math.min(Math.max(scale.stepAt(x), firstStep), lastStep);
    const lane = packing.lanes[Math.floor(y / this.pitch)];
    const stay = lane?.length ? occupant(lane, inPlot ? step : scene.step) : null;
    const isThere = stay && step >= stay.from - 1 && step <= stay.to + 4;
    const span = stay && (isThere || !inPlot) ? replica.model.requests[stay.index] : null;
    return { step, inPlot, span };
  }
}
