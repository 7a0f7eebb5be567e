/** Strip, lanes and axis as one panel: three canvases on one time axis, and the pointer over them. */

import { rangeWords } from "../board/range.js";
import { CanvasPainter } from "../drawing/canvas_painter.js";
import { h } from "../drawing/html.js";
import { laneAt, occupant, packLanes, ROOM } from "../drawing/lane_packing.js";
import { laneRows } from "../drawing/lane_rows.js";
import { drawStrip, STRIP_HEIGHT } from "../drawing/strip.js";
import {
  clampView,
  panView,
  revealStep,
  stepAxis,
  timeScale,
  wholeView,
  zoomView,
} from "../drawing/time_axis.js";
import { BLEED, drawAxis, drawTimeline, HEADROOM } from "../drawing/timeline.js";
import { wallAxis } from "../drawing/wall_axis.js";
import { RangeMark } from "./range_mark.js";
import { requestTable, stepTable } from "./tables.js";
import { listenToPointer } from "./time_pointer.js";

const AXIS_HEIGHT = 22;
const COMFORTABLE = 12; // px a step gets when the log is too long to be shown whole
// px a step; below this the strip becomes an overview. By time steps differ, and half is enough for a usual one.
const TIGHTEST = { steps: { wide: 8, narrow: 4 }, time: { wide: 4, narrow: 2 } };

export class TimePanel {
  constructor(board) {
    this.board = board;
    this.strip = h("canvas", { role: "img", class: "strip" });
    this.lanes = h("canvas", { role: "img" });
    this.axis = h("canvas", { "aria-hidden": "true" });
    this.spacer = h("div", {}, this.lanes);
    this.scroller = h("div", { class: "lanes", role: "group", "aria-label": "Lanes" }, this.spacer);
    this.alternative = h("div", { class: "alternative", role: "group", "aria-label": "Tables" });
    this.rangeMark = new RangeMark(this);
    this.rangeWords = h("p", { class: "note range-words", role: "status", hidden: true });
    this.element = h(
      "section",
      { class: "time", "aria-label": "Timeline" },
      this.strip,
      this.scroller,
      this.axis,
      ...this.rangeMark.boxes,
      this.rangeWords,
      this.alternative,
    );
    this.pencils = [this.strip, this.lanes, this.axis].map((canvas) => new CanvasPainter(canvas));
    this.scrolled = 0; // kept, because asking the page lays it out
    this.together = [this]; // panels that share one axis
    this.pinned = false; // does the view stay at the end, while a live log grows?
    this.listen();
  }

  /** Takes over a model (again, when a live log has grown). */
  setModel(model) {
    this.model = model;
    this.log = { first: model.firstStep, last: model.lastStep };
    this.spans = model.requests.map((span) => spanOf(span, model));
    this.forks = model.requests.filter(({ forked }) => forked);
    this.pack();
    this.measureTime();
    for (const painter of this.pencils) painter.forget();
  }

  /** The axis that the reader asked for; steps where a log has no times. */
  measureTime() {
    const byTime =
      this.board.store.axis === "time" ? this.together.map(({ model }) => wallAxis(model)) : null;
    const all = byTime?.every(Boolean) ? byTime : this.together.map(({ log }) => stepAxis(log));
    this.timeAxis = {
      ...all[this.together.indexOf(this)],
      from: Math.min(...all.map(({ from }) => from)),
      to: Math.max(...all.map(({ to }) => to)),
    };
    if (this.view && this.pinned) this.pin();
  }

  /** The other axis, with the same steps in view. */
  changeAxis() {
    const shown = !this.element.hidden;
    const window = shown ? this.window : null;
    this.measureTime();
    this.view = null;
    if (!shown) return;
    this.layout();
    if (window) this.lookAt(window);
  }

  /**
   * Gives everybody a lane. A live picture keeps all it gave; of a log the whole is known, and a crowd that
   * would not fit anyway gets lanes of full height.
   */
  pack() {
    const { requests, settings } = this.model;
    const { max_batch_size: batch } = settings;
    const kept = requests.map(({ id }) => this.lanesKept?.get(id));
    this.room = ROOM.crowd;
    this.packing = packLanes(this.spans, { room: this.room, batch, kept });
    if (this.board.isLive || this.packing.lanes.length <= this.room) return;
    this.room = Math.max(ROOM.roomy, batch);
    this.packing = packLanes(this.spans, { room: this.room, batch });
  }

  /** Who has which lane; `model`, the same log without its beginning, is to be shown with them. */
  keepLanes(model) {
    const { requests } = this.model;
    const kept = requests.map(({ id, index }) => [id, this.packing.chosen[index]]);
    this.lanesKept = new Map(kept.filter(([id]) => model.request(id)));
  }

  /** Measures: where the axis begins, how high the lanes are, whether the strip is an overview. */
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
    // A view of all there was is no view to keep once there is too much: it may have been of few steps.
    if (!this.view || !this.long || !this.wasLong) this.view = this.openingView();
    this.wasLong = this.long;
    const rows = laneRows(this.lanesInSight(), this.room, this.board);
    this.laneHeight = rows.pitch;
    this.full = this.packing.lanes.length * rows.pitch;
    this.viewHeight = rows.height;
    // With more lanes than are seen, the keyboard scrolls them, too.
    if (this.full > rows.height) this.scroller.tabIndex = 0;
    else this.scroller.removeAttribute("tabindex");
    this.spacer.style.height = `${(this.full + HEADROOM) * unit}px`;
    this.scroller.style.height = `${(this.viewHeight + HEADROOM) * unit}px`;
    for (const element of [this.strip, this.scroller, this.axis])
      element.style.marginLeft = `${-BLEED * unit}px`;
    this.scroller.style.marginRight = `${-BLEED * unit}px`;
    this.writeRange();
  }

  /**
   * How many lanes there is something in. A live picture forgets a crowd that has left it, but not before
   * half of its lanes are empty: its height should not change all the time.
   */
  lanesInSight() {
    const { lanes } = this.packing;
    if (!this.board.isLive) return lanes.length;
    const { first } = this.scale;
    const needed = 1 + lanes.findLastIndex((stays) => stays.at(-1)?.to >= first);
    const before = Math.min(this.rowsBefore ?? 0, lanes.length);
    this.rowsBefore = needed > before || needed <= before / 2 ? needed : before;
    return this.rowsBefore;
  }

  /** Its height in board pixels, known before it is drawn. */
  get height() {
    return STRIP_HEIGHT + HEADROOM + this.viewHeight + AXIS_HEIGHT;
  }

  /** Another log: the view stays as wide as it is, on the new axis and around the cursor. */
  refit() {
    if (!this.view) return;
    const axis = this.timeAxis;
    this.view = revealStep(clampView(this.view, axis), this.board.store.step, axis);
  }

  openingView() {
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

  /** The scale of the strip: of the whole axis, where there is more than the lanes show. */
  get overview() {
    const axis = this.timeAxis;
    return this.long ? timeScale(wholeView(axis), this.left, this.right, axis) : this.scale;
  }

  /** The cursor must stay in sight; so must the selected lane. */
  revealCursor() {
    this.view = revealStep(this.view, this.board.store.step, this.timeAxis);
  }

  revealSelected() {
    const { selected, step } = this.board.store;
    const lane = laneAt(this.packing, this.model.request(selected)?.index, step);
    if (lane == null) return;
    const top = lane * this.laneHeight;
    const seen = this.scrolled / this.board.unit;
    const hidden = top < seen || top + this.laneHeight > seen + this.viewHeight;
    if (!hidden) return;
    const above = Math.floor(this.viewHeight / 2 / this.laneHeight); // whole lanes
    this.scroller.scrollTop = (lane - above) * this.laneHeight * this.board.unit;
    this.scrolled = this.scroller.scrollTop;
  }

  /** `anchor`, a place on the axis, stays where it is. */
  zoom(factor, anchor = this.middleOf(this.board.store.step)) {
    if (this.long) this.look(zoomView(this.view, factor, anchor, this.timeAxis));
  }

  middleOf(step) {
    return (this.timeAxis.begin(step) + this.timeAxis.end(step)) / 2;
  }

  pan(share) {
    this.panFrom(this.view, (this.view.to - this.view.from) * share);
  }

  panFrom(view, delta) {
    this.look(panView(view, delta, this.timeAxis));
  }

  /** Moves the view, as wide as it is, to the end of the axis. */
  pin() {
    const { to } = this.timeAxis;
    this.view = clampView({ from: to - (this.view.to - this.view.from), to }, this.timeAxis);
  }

  /** Shows another part of the time axis. */
  look(view) {
    this.view = view;
    this.board.store.set({ window: [view.from, view.to] });
  }

  /** The steps from, to (excluded). */
  lookAt([from, to]) {
    const { timeAxis: axis } = this;
    if (this.long) this.look(clampView({ from: axis.begin(from), to: axis.end(to - 1) }, axis));
  }

  /** Is there more than can be seen? */
  get isZoomed() {
    return this.view.to - this.view.from < this.timeAxis.to - this.timeAxis.from;
  }

  /** The steps that are shown, [from, to), or null where all are. */
  get window() {
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
      const { from, to } = this.spans[span.index];
      this.lookAt([Math.max(this.log.first, from - 1), to + 3]);
    } else this.look(this.openingView());
  }

  draw() {
    const { board, model, width, scale, long } = this;
    const { unit, theme, narrow, frame, store } = board;
    const common = { model, frame, narrow, width, step: store.step, selected: store.selected };
    const { kind, from, to } = this.timeAxis;
    const known = [model.events.length, narrow, kind, from, to, this.left];
    const [strip, lanes, axis] = this.pencils;
    const bleed = (painter, height, draw) => {
      painter.begin(width + 2 * BLEED, height, unit, theme);
      painter.context.translate(BLEED, 0);
      draw();
    };
    bleed(strip, STRIP_HEIGHT, () =>
      drawStrip(strip, {
        ...common,
        still: (long ? known : [...known, this.view.from, this.view.to]).join(" "),
        overview: long,
        scale: this.overview,
        window: long && this.isZoomed ? this.view : null,
      }),
    );
    this.lanes.dataset.shown = this.shown().join(" ");
    this.lanes.dataset.plot = `${this.left} ${this.right}`;
    this.lanes.dataset.view = `${this.view.from} ${this.view.to}`;
    this.scene = {
      ...common,
      still: [...known, this.view.from, this.view.to].join(" "),
      scale,
      packing: this.packing,
      forks: this.forks,
      laneHeight: this.laneHeight,
      scroll: this.scrolled / unit,
      viewHeight: this.viewHeight,
      columns: this.columns,
    };
    bleed(lanes, this.viewHeight + HEADROOM, () => {
      lanes.context.translate(0, HEADROOM);
      drawTimeline(lanes, this.scene);
    });
    bleed(axis, AXIS_HEIGHT, () => drawAxis(axis, this.scene));
    this.rangeMark.draw();
  }

  /** The same for those who hear the board: a label each. The tables are tables.js's. */
  write() {
    const { model, board } = this;
    const { frame } = board;
    const { used, cached, free } = Object.fromEntries(
      ["used", "cached", "free"].map((name) => [
        name,
        model.measures[name][frame.step - model.firstStep],
      ]),
    );
    this.strip.setAttribute(
      "aria-label",
      `Step ${frame.step} of ${model.lastStep}: ${used} blocks used, ${cached} cached, ${free} free; ` +
        `${frame.budget.tokens} of ${frame.budget.budget} tokens; ${frame.waiting.length} waiting`,
    );
    this.lanes.setAttribute(
      "aria-label",
      `Timeline of ${model.requests.length} requests; tables follow`,
    );
  }

  /** The requests whose lanes are in sight, from the top. */
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

  /** The brushed range, in words. */
  writeRange() {
    const { range } = this.board.store;
    this.rangeWords.hidden = !range;
    this.rangeWords.textContent = range ? rangeWords(this.model, range) : "";
  }

  // The pointer

  /** The pointer in board pixels, its step, and the request in whose lane it is. */
  locate(event, canvas) {
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left) / this.board.unit - BLEED;
    const y = (event.clientY - box.top) / this.board.unit;
    const onStrip = canvas === this.strip;
    const scale = onStrip ? this.overview : this.scale;
    const step = Math.min(Math.max(scale.stepAt(x), this.log.first), this.log.last);
    const place = { x, y, step, inPlot: x >= this.left - 2 && x <= this.right + 6, span: null };
    if (canvas === this.lanes) {
      const lane =
        this.packing.lanes[Math.floor((y - HEADROOM + this.scene.scroll) / this.laneHeight)];
      if (lane?.length) {
        const stay = occupant(lane, place.inPlot ? step : this.board.store.step);
        place.span = this.model.requests[stay.index];
      }
    }
    return place;
  }

  listen() {
    listenToPointer(this);
    this.scroller.addEventListener(
      "scroll",
      () => {
        this.scrolled = this.scroller.scrollTop;
        if (this.model) this.board.store.set({ scrolled: this.scrolled });
      },
      { signal: this.board.signal },
    );
  }
}

/** From when to when there is something of a request to draw, and since when it runs. */
function spanOf(span, { firstStep, lastStep }) {
  const from = span.forked?.step ?? span.arrived ?? firstStep;
  const waits = ["waiting", "preempted"].includes(span.segments[0]?.kind);
  const runs = span.admissions[0]?.step ?? (waits ? null : from);
  return { from, to: Math.max(from, span.finished?.step ?? lastStep), runs };
}
