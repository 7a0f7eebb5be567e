/**
 * The timeline: strip, lanes and axis, canvases with one time axis; with asynchronous scheduling also its two lanes.
 */

import type { Board, Panel } from "../board/board.ts";
import { describeStep, overlapWords, textOf } from "../board/descriptions.ts";
import { Part } from "../board/part.ts";
import { patchChildren } from "../board/patch_children.ts";
import { rangeWords } from "../board/range.ts";
import { nameTerms } from "../board/terms.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { causeWords, paintCause } from "../drawing/causes.ts";
import { h, hide, pointIn, say, setAttribute, tell } from "../drawing/html.ts";
import {
  laneAt,
  laneRows,
  occupant,
  type Packing,
  packLanes,
  ROOM,
} from "../drawing/lane_packing.ts";
import { drawOverlap, OVERLAP_HEIGHT } from "../drawing/overlap.ts";
import { drawStrip, STRIP_HEIGHT } from "../drawing/strip.ts";
import {
  type Axis,
  clampView,
  panView,
  revealStep,
  type Scale,
  stepAxis,
  timeScale,
  type View,
  wholeView,
  zoomView,
} from "../drawing/time_axis.ts";
import {
  BLEED,
  drawAxis,
  drawTimeline,
  type Fork,
  HEADROOM,
  type TimelineScene,
} from "../drawing/timeline.ts";
import { bandHeight, drawBand } from "../drawing/waiting_band.ts";
import { wallAxis } from "../drawing/wall_axis.ts";
import { halved } from "../drawing/words_html.ts";
import { halfDot, knowledgeWords, lacks, missing } from "../model/knowledge.ts";
import type { Model } from "../model/model.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { DevicesBox } from "./devices_box.ts";
import { GroupsBox } from "./groups_box.ts";
import { Painted, paintWords } from "./painted.ts";
import { requestTable, stepTable, tablesBox } from "./tables.ts";
import { listenToPointer } from "./time_pointer.ts";

/** of the pointer in board pixels, its step, and the request in whose lane it is */
export type Place = {
  x: number;
  y: number;
  step: number;
  inPlot: boolean;
  span: RequestSpan | null;
};

const AXIS_HEIGHT = 22;
const CONTROLS = 30; // px above the lanes where no strip is, as in board.css
const COMFORTABLE = 12; // px per step if the log is too long to be shown whole
// px per step below which the strip becomes an overview; on a time axis, half of it for a typical step.
const TIGHTEST = { steps: { wide: 8, narrow: 4 }, time: { wide: 4, narrow: 2 } };

export class TimePanel extends Part {
  reads: Panel["reads"] = ["selected", "touched", "queue"];
  strip = h("canvas.strip", { role: "img" });
  overlap = h("canvas.overlap", {
    role: "img",
    "aria-label": "Scheduler and forward pass",
    hidden: true,
  });
  /** The number of the step where no strip says it. */
  head = h("span.head.small", { "aria-hidden": "true" });
  lanes = h("canvas", { role: "img" });
  axis = h("canvas", { "aria-hidden": "true" });
  band = h("canvas", { role: "img" });
  pencils = [this.strip, this.lanes, this.axis, this.overlap, this.band].map(
    (canvas) => new CanvasPainter(canvas),
  );
  queueWords = [h("strong"), h("span"), h("span.muted")];
  queue = new Painted(h("span.stack", ...this.queueWords));
  painted = [this.queue];
  queueButton = h(
    "button.queue-button.small",
    { "data-act": "queue", click: () => this.board.toggleQueue() },
    this.queue.element,
  );
  legend = h("p.legend.flow.small.muted");
  spacer = h("div", this.lanes);
  scroller = h(
    "div.lanes",
    { role: "group", "aria-label": "Lanes", scroll: () => this.scroll() },
    this.spacer,
  );
  alternative = tablesBox();
  groups = new GroupsBox(this.board);
  devices = new DevicesBox(this.board);
  /** The selected range on the strip and on the lanes: on a long log their scales differ. */
  rangeBoxes = [0, 1].map(() => h("div.range", { hidden: true, "aria-hidden": "true" }));
  rangeWords = h("p.note.range-words", { role: "status", hidden: true });
  element = h(
    "section.time",
    { "aria-label": "Timeline" },
    this.strip,
    this.head,
    this.overlap,
    this.scroller,
    h("div.waiting", this.band, this.queueButton),
    this.axis,
    this.legend,
    this.devices.element,
    this.groups.element,
    ...this.rangeBoxes,
    this.rangeWords,
    this.alternative,
  );
  /** What the legend shows. */
  legendKey = "";
  /** Rows of a live timeline. */
  rowsBefore = 0;
  /** Kept here, because reading it forces a layout. */
  scrolled = 0;
  /** Panels that share one axis. */
  together: TimePanel[] = [this];
  /** Whether the window stays at the end while a live log grows. */
  pinned = false;
  model!: Model;
  log!: { first: number; last: number };
  forks!: Fork[];
  timeAxis!: Axis;
  wasLong?: boolean;
  packing!: Packing;
  /** Lanes that should be visible at once. */
  room!: number;
  /** In board pixels. */
  width!: number;
  columns!: TimelineScene["columns"];
  left!: number;
  right!: number;
  /** Whether the strip is an overview. */
  long!: boolean;
  /** The part of the axis that the lanes show. */
  view!: View;
  laneHeight!: number;
  full!: number;
  viewHeight!: number;
  scene!: TimelineScene;

  constructor(board: Board) {
    super(board);
    listenToPointer(this);
  }

  /** Sets the model; called again when a live log has grown. */
  setModel(model: Model) {
    this.model = model;
    this.log = { first: model.firstStep, last: model.lastStep };
    this.overlap.hidden = !model.settings.async_scheduling;
    const forks = model.requests.filter(({ forked }) => forked);
    this.forks = (forks as Fork[]).sort((a, b) => a.forked.step - b.forked.step);
    this.pack();
    this.measureTime();
    for (const painter of this.pencils) painter.forget();
  }

  /** Computes the axis that the user chose, or steps if a log has no times. */
  measureTime() {
    const byTime =
      this.board.store.axis === "time" ? this.together.map(({ model }) => wallAxis(model)) : null;
    const all = byTime?.every((axis) => axis !== null)
      ? byTime
      : this.together.map(({ log }) => stepAxis(log));
    this.timeAxis = {
      ...all[this.together.indexOf(this)],
      from: Math.min(...all.map(({ from }) => from)),
      to: Math.max(...all.map(({ to }) => to)),
    };
    if (this.view && this.pinned) this.pin();
  }

  /** Switches to the axis in the store and keeps the same steps in view. */
  changeAxis() {
    const shown = !this.element.hidden;
    const window = shown ? this.window : null;
    this.measureTime();
    this.wasLong = false; // so that the layout computes a new window
    if (!shown) return;
    this.layout();
    if (window) this.lookAt(window);
  }

  /** Computes the rows. With more of them than can be visible at once, those have the full height. */
  pack() {
    const { model, board } = this;
    this.packing = packLanes(model, board.store.pinned);
    const fits = board.isLive || this.packing.lanes.length <= ROOM.crowd;
    this.room = fits ? ROOM.crowd : ROOM.roomy;
  }

  /** Computes where the axis begins, the height of the lanes, and whether the strip is an overview. */
  layout() {
    const { unit, narrow } = this.board;
    this.width = this.element.clientWidth / unit;
    const [painter] = this.pencils;
    const named = this.together.flatMap(({ model }) => model?.requests.slice(0, 400) ?? []);
    const longestName = Math.max(
      ...named.map(({ name }) => painter.measure(name, { bold: true })),
      17,
    );
    const stateAt = 13 + Math.min(longestName, narrow ? 44 : 96) + (narrow ? 4 : 8);
    const gutter = stateAt + (narrow ? 62 : 68);
    this.columns = { stateAt, end: gutter - 2 };
    this.left = gutter;
    this.right = this.width - (narrow ? 8 : 34);
    const { kind, from, to, typical } = this.timeAxis;
    const perStep = ((this.right - this.left) / (to - from)) * typical;
    this.long = perStep < TIGHTEST[kind][narrow ? "narrow" : "wide"];
    // A window of the whole log is not kept once the log is too long: it may have had few steps.
    const { view } = this;
    if (!view || !this.long || !this.wasLong) {
      this.view = this.openingView();
    }
    this.wasLong = this.long;
    const rows = laneRows(this.lanesInSight(), this.room, this.board);
    this.laneHeight = rows.pitch;
    this.full = this.packing.lanes.length * rows.pitch;
    this.viewHeight = rows.height;
    // If not all lanes are visible, the keyboard can scroll them.
    if (this.full > rows.height) this.scroller.tabIndex = 0;
    else this.scroller.removeAttribute("tabindex");
    this.spacer.style.height = `${(this.full + HEADROOM) * unit}px`;
    this.scroller.style.height = `${(this.viewHeight + HEADROOM) * unit}px`;
    for (const element of [this.strip, this.overlap, this.scroller, this.band, this.axis])
      element.style.marginLeft = `${-BLEED * unit}px`;
    this.scroller.style.marginRight = `${-BLEED * unit}px`;
    this.legend.style.marginLeft = `${this.left * unit}px`;
    this.writeRange();
  }

  /**
   * The number of lanes. A live timeline removes empty lanes only when half of them are empty, so that its
   * height does not change all the time.
   */
  lanesInSight(): number {
    const { lanes } = this.packing;
    if (!this.board.isLive) return lanes.length;
    const { first } = this.scale;
    const needed = 1 + lanes.findLastIndex((stays) => Number(stays.at(-1)?.to) >= first);
    const before = Math.min(this.rowsBefore, lanes.length);
    this.rowsBefore = needed > before || needed <= before / 2 ? needed : before;
    return this.rowsBefore;
  }

  /** The height in board pixels, known before drawing. */
  get height() {
    const overlap = this.overlap.hidden ? 0 : OVERLAP_HEIGHT;
    const band = this.isWhole ? bandHeight() : 0;
    return this.above + overlap + HEADROOM + this.viewHeight + band + AXIS_HEIGHT;
  }

  /** The height of what stands above the lanes, in board pixels. */
  get above() {
    return this.isWhole ? STRIP_HEIGHT + this.regimes : CONTROLS;
  }

  /** Whether it shows more than the lanes: the strip, the regimes and who waits. */
  get isWhole() {
    return this.board.shownLevel === "all";
  }

  /** The height of the bar of regimes in board pixels; a comparison has none. */
  get regimes() {
    return this.board.run?.height ?? 0;
  }

  /** Fits the window to another log: it keeps its width, around the cursor. */
  refit() {
    if (!this.view) return;
    const axis = this.timeAxis;
    this.view = revealStep(clampView(this.view, axis), this.board.store.step, axis);
  }

  openingView(): View {
    const axis = this.timeAxis;
    if (!this.long) return wholeView(axis);
    const width = ((this.right - this.left) / COMFORTABLE) * axis.typical;
    const { step } = this.board.store;
    const from = axis.begin(step) - width / 2;
    return revealStep(clampView({ from, to: from + width }, axis), step, axis);
  }

  get scale() {
    return timeScale(this.view, this.left, this.right, this.timeAxis);
  }

  /** The scale of the strip: the whole axis if the lanes show only a part of it. */
  get overview() {
    const axis = this.timeAxis;
    return this.long ? timeScale(wholeView(axis), this.left, this.right, axis) : this.scale;
  }

  /** Moves the window so that the cursor is visible. */
  revealCursor() {
    this.view = revealStep(this.view, this.board.store.step, this.timeAxis);
  }

  revealSelected() {
    const { selected } = this.board.store;
    const lane = laneAt(this.packing, this.model.request(selected)?.index);
    if (lane == null) return;
    const top = lane * this.laneHeight;
    const seen = this.scrolled / this.board.unit;
    const hidden = top < seen || top + this.laneHeight > seen + this.viewHeight;
    if (!hidden) return;
    const above = Math.floor(this.viewHeight / 2 / this.laneHeight); // whole lanes
    this.scroller.scrollTop = (lane - above) * this.laneHeight * this.board.unit;
    this.scrolled = this.scroller.scrollTop;
  }

  /** Zooms; `anchor`, a place on the axis, stays where it is. */
  zoom(factor: number, anchor: number = this.middleOf(this.board.store.step)) {
    if (this.long) this.look(zoomView(this.view, factor, anchor, this.timeAxis));
  }

  middleOf(step: number) {
    return (this.timeAxis.begin(step) + this.timeAxis.end(step)) / 2;
  }

  pan(share: number) {
    this.panFrom(this.view, (this.view.to - this.view.from) * share);
  }

  panFrom(view: View, delta: number) {
    this.look(panView(view, delta, this.timeAxis));
  }

  /** Moves the window to the end of the axis and keeps its width. */
  pin() {
    const { to } = this.timeAxis;
    this.view = clampView({ from: to - (this.view.to - this.view.from), to }, this.timeAxis);
  }

  /** Shows another part of the time axis. */
  look(view: View) {
    this.view = view;
    this.board.store.set({ window: [view.from, view.to] });
  }

  /** Shows the steps [from, to). */
  lookAt([from, to]: [from: number, to: number]) {
    const { timeAxis: axis } = this;
    if (this.long) this.look(clampView({ from: axis.begin(from), to: axis.end(to - 1) }, axis));
  }

  /** Whether the window shows only a part of the axis. */
  get isZoomed() {
    return this.view.to - this.view.from < this.timeAxis.to - this.timeAxis.from;
  }

  /** The visible steps, [from, to), or null if all are visible. */
  get window(): [number, number] | null {
    if (!this.isZoomed) return null;
    const { first, last } = this.scale;
    return [first, Math.min(last, this.log.last) + 1];
  }

  /** Shows all steps; if they are all visible already, the selected request's steps; else the previous window. */
  fit() {
    if (!this.long) return;
    const whole = wholeView(this.timeAxis);
    const span = this.model.request(this.board.store.selected);
    const isWhole = this.view.from === whole.from && this.view.to === whole.to;
    if (!isWhole) this.look(whole);
    else if (span) {
      const from = (span.forked?.step ?? span.arrived ?? this.log.first) - 1;
      const to = span.finished?.step ?? this.log.last;
      this.lookAt([Math.max(this.log.first, from), to + 3]);
    } else this.look(this.openingView());
  }

  draw() {
    const { board, model, width, scale, long } = this;
    const { unit, theme, narrow, frame, store } = board;
    const { step, selected, touched } = store;
    const common = { model, frame, narrow, width, step, selected, untouched: !touched };
    const { kind, from, to } = this.timeAxis;
    const known = [model.events.length, narrow, kind, from, to, this.left];
    const [strip, lanes, axis, overlap, band] = this.pencils;
    const begin = (painter: CanvasPainter, height: number) =>
      painter.begin(width, height, unit, theme, BLEED);
    const moving = [...known, this.view.from, this.view.to].join(" ");
    if (this.isWhole) {
      drawStrip(begin(strip, STRIP_HEIGHT), {
        ...common,
        still: long ? known.join(" ") : moving,
        overview: long,
        scale: this.overview,
        window: long && this.isZoomed ? this.view : null,
      });
      board.run?.place(this.overview, long);
    }
    if (!this.overlap.hidden)
      drawOverlap(begin(overlap, OVERLAP_HEIGHT), { ...common, scale, still: moving });
    this.scene = {
      ...common,
      still: moving,
      scale,
      packing: this.packing,
      forks: this.forks,
      laneHeight: this.laneHeight,
      scroll: this.scrolled / unit,
      viewHeight: this.viewHeight,
      columns: this.columns,
    };
    begin(lanes, this.viewHeight + HEADROOM).context.translate(0, HEADROOM);
    drawTimeline(lanes, this.scene);
    if (this.isWhole) drawBand(begin(band, bandHeight()), this.scene);
    // It is the same in all steps.
    const axisKey = [moving, width, unit, theme.name, globalThis.devicePixelRatio].join(" ");
    if (axis.keptKey !== axisKey) drawAxis(begin(axis, AXIS_HEIGHT), this.scene);
    axis.keptKey = axisKey;
    this.devices.draw(board, this.left, this.right);
    this.drawRange();
  }

  drawRange() {
    const { range } = this.board.store;
    const places: [scale: Scale, top: number, height: number][] = [
      [this.overview, 18, STRIP_HEIGHT - 18],
      [this.scale, this.above, this.height - this.above],
    ];
    this.rangeBoxes.forEach((box, i) => {
      const [scale, top, height] = places[i];
      const left = Math.max(scale.left, scale.x(range?.[0] ?? 0));
      const right = Math.min(scale.right, scale.end(range?.[1] ?? 0));
      hide(box, !range || right <= left || (!i && !this.isWhole));
      if (box.hidden) return;
      for (const [name, value] of Object.entries({ left, top, width: right - left, height }))
        box.style.setProperty(name, `${value * this.board.unit}px`);
    });
  }

  /**
   * Writes what the lanes show into attributes, after all drawing: text drawn after it makes styles be computed
   * twice.
   */
  writeShown() {
    if (!this.isWhole) this.#placeHead();
    tell(this.lanes, {
      shown: this.shown().join(" "),
      plot: `${this.left} ${this.right}`,
      view: `${this.view.from} ${this.view.to}`,
    });
  }

  write() {
    this.writeWaiting();
  }

  /** Writes the canvases' labels for screen readers; the tables are in `tables.ts`. */
  writeLabels() {
    const { model, board } = this;
    const { frame } = board;
    this.writeShown();
    this.groups.show(Math.floor(this.viewHeight / this.laneHeight));
    const words = describeStep(model, frame.step).map(textOf).join("; ");
    setAttribute(this.strip, "aria-label", `${words}; of ${model.lastStep} steps`);
    const waiting = `Waiting requests by cause; ${frame.waitingCount} at this step`;
    setAttribute(this.band, "aria-label", waiting);
    const label = `Timeline of ${model.requests.length} requests; tables follow`;
    setAttribute(this.lanes, "aria-label", label);
    if (this.overlap.hidden) return;
    const passes = overlapWords(model.measures.computed(frame.step));
    const computed = `Asynchronous scheduling: step ${frame.step} is scheduled; ${passes}`;
    setAttribute(this.overlap, "aria-label", computed);
  }

  #placeHead() {
    const { head, scale, board } = this;
    const { step } = board.frame;
    hide(head, step < scale.first || step > scale.last);
    say(head, `step ${step}`);
    head.style.transform = `translateX(${scale.middle(step) * board.unit}px) translateX(-50%)`;
  }

  /** Paints how many requests wait. */
  paint() {
    const { board, left } = this;
    const [number, kinds, act] = this.#waiting();
    const painter = this.queue.begin(left, 42, board, number);
    const form = { width: left, size: 11, line: 14 };
    const { muted } = board.theme;
    const lines = [{ text: number, bold: true }, { text: kinds }, { text: act, color: muted }];
    lines
      .filter(({ text }) => text)
      .forEach((line, i) => paintWords(painter, [line], { ...form, y: 14 * i }, board.context()));
  }

  /** How many requests wait, which ones, and what a click does. */
  #waiting() {
    const { model, board } = this;
    const { frame, store, narrow } = board;
    const count = frame.waitingCount;
    const suspended = model.measures.suspended.at(frame.step - model.firstStep);
    const isKnown = !lacks(model, "queue");
    const waiting = `${count} waiting ${count ? halfDot(model, "waiting_reasons") : ""}`;
    const fresh = count - suspended;
    const parted = suspended && !narrow ? `${suspended} preempted, ${fresh} new` : "";
    const does = store.queue ? "▾ close" : "▸ open";
    return [
      isKnown ? waiting : "waiting",
      isKnown ? parted || (count ? "" : "no queue") : knowledgeWords.unknown,
      narrow ? does : `${does} the queue`,
    ];
  }

  /** Writes how many requests wait, and the causes of the run's waits. */
  writeWaiting() {
    const { model, board } = this;
    const { theme, store } = board;
    const [number, kinds, act] = this.#waiting();
    const [first, second, third] = this.queueWords;
    patchChildren(first, halved(number));
    say(second, kinds);
    say(third, act);
    setAttribute(this.queueButton, "aria-expanded", String(!!store.queue));
    this.queueButton.style.width = `${this.left * board.unit}px`;
    setAttribute(
      this.band,
      "aria-label",
      `Waiting requests by cause; ${board.frame.waitingCount} at this step`,
    );
    const causes = [...model.waitCauses];
    const key = `${theme.name} ${causes}`;
    if (this.legendKey === key) return;
    this.legendKey = key;
    const parts = causes.map((cause) => {
      const swatch = h("i", { "aria-hidden": "true" });
      paintCause(swatch, theme, cause);
      return h("span", swatch, causeWords(cause));
    });
    const lead = causes.length
      ? `waiting ${halfDot(model, "waiting_reasons")}for (paler: behind another)`
      : "no request has waited";
    const words = missing(model, "queue", "waiting_reasons") || lead;
    this.legend.replaceChildren(h("span", ...halved(words)), ...parts);
    nameTerms(this.legend.firstElementChild);
  }

  /** The requests whose lanes are visible, from the top. */
  shown() {
    const { scrolled, laneHeight, viewHeight, packing, model, board } = this;
    const top = scrolled / board.unit / laneHeight;
    const seen = packing.lanes.slice(
      Math.ceil(top - 0.5),
      Math.floor(top + viewHeight / laneHeight + 0.5),
    );
    const stays = seen
      .filter((lane) => lane.length)
      .map((lane) => occupant(lane, board.store.step));
    return stays.map(({ index }) => model.requests[index].id);
  }

  tables() {
    return [stepTable(this.board), requestTable(this.board)];
  }

  /** Writes the sums of the selected range. */
  writeRange() {
    const { range } = this.board.store;
    this.rangeWords.hidden = !range;
    this.rangeWords.textContent = range ? rangeWords(this.model, range) : "";
  }

  // The pointer

  /** What is under the pointer. */
  locate(event: MouseEvent, canvas: HTMLCanvasElement) {
    const [left, y] = pointIn(canvas, event, this.board.unit);
    const x = left - BLEED;
    const onStrip = canvas === this.strip;
    const scale = onStrip ? this.overview : this.scale;
    const step = Math.min(Math.max(scale.stepAt(x), this.log.first), this.log.last);
    const place: Place = {
      x,
      y,
      step,
      inPlot: x >= this.left - 2 && x <= this.right + 6,
      span: null,
    };
    if (canvas === this.lanes) {
      const lane =
        this.packing.lanes[Math.floor((y - HEADROOM + this.scene.scroll) / this.laneHeight)];
      if (lane?.length) {
        const stay = occupant(lane, place.inPlot ? step : this.board.store.step);
        const isThere = step >= stay.from - 1 && step <= stay.to + 4; // its name, and the reason of its end
        if (isThere || !place.inPlot) place.span = this.model.requests[stay.index];
      }
    }
    return place;
  }

  scroll() {
    this.scrolled = this.scroller.scrollTop;
    if (this.model) this.board.store.set({ scrolled: this.scrolled });
  }
}
