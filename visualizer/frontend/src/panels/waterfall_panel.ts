/**
 * "Where did the time go?": one bar per request from its arrival, of many requests two per group until it is opened, a line at the limit of the time to the first
 * token, and beside them why the selected request was slow. It does not depend on the step; a click on a bar goes to
 * the step that the part belongs to.
 */

import type { Board, Panel } from "../board/board.ts";
import { Part } from "../board/part.ts";
import { made, patchChildren } from "../board/patch_children.ts";
import css from "../board/waterfall.css";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { causeWords } from "../drawing/causes.ts";
import { closest, h, plural, pointIn, visible } from "../drawing/html.ts";
import { roundUnit } from "../drawing/time_axis.ts";
import { BAR, drawBar, drawFlag, drawLabels, familyOf, partsOf } from "../drawing/waterfall_bar.ts";
import { chip, levelDot, type WordContext, wordNodes } from "../drawing/words_html.ts";
import { partWords } from "../model/knowledge.ts";
import type { Model } from "../model/model.ts";
import { lateness } from "../model/run_summary.ts";
import type { TimeGroup } from "../model/time_groups.ts";
import type { RequestTime, Span } from "../model/waterfall.ts";
import { causeName, share, timeWords, totals, verdict } from "../model/waterfall_words.ts";
import type { Saving } from "./run_panel.ts";
import { table, tablesBox } from "./tables.ts";
import { groupRows, SORTINGS, sortTimes, type WaterfallRow } from "./waterfall_order.ts";
import { WhySlow } from "./why_slow.ts";

export type WaterfallContext = WordContext & { model: Model };

/** the limits that a request broke */
export type Late = ReturnType<typeof lateness>;

const PITCH = { wide: 38, narrow: 34 };
const MOST_SEEN = 18; // rows; more scroll
const TOP = 22; // px above the first row, for the limit's label
const AXIS = 26;
const NAME = { wide: 78, narrow: 64 };
const END = { wide: 100, narrow: 66 };
const MOST_IN_TABLE = 200;
const SWATCH = 30; // px of the column of names that are not the name
const NOTE =
  "paler: behind another request; dot: first token, filled when late; bold: outside the SLO";

export class WaterfallPanel extends Part {
  reads: Panel["reads"] = ["selected", "touched", "slo"];
  /** A key of SORTINGS, or "groups"; null until a reader chooses: groups, if there are more requests than rows. */
  chosen: string | null = null;
  /** The names of the groups whose requests all have a row. */
  open: Set<string> = new Set();
  /** What the key shows. */
  keyed = "";
  verdict = h("p.verdict");
  key = h("ul.causes.flow.small", { "aria-label": "Shares of all time" });
  sorts = h(
    "div.sorts",
    { role: "group", "aria-label": "Order of the requests" },
    ...Object.entries({ groups: { words: "groups" }, ...SORTINGS }).map(([name, { words }]) =>
      h("button", { "data-sort": name, click: () => this.sort(name) }, words),
    ),
  );
  bars = h("canvas", { role: "img", "aria-label": "Bars", click: (event) => this.clicked(event) });
  painter = new CanvasPainter(this.bars);
  names = h("div.names", { click: (event) => this.openGroup(event) });
  spacer = h("div.spacer", this.bars, this.names);
  scroller = h(
    "div.rows",
    { role: "group", "aria-label": "Requests", scroll: () => this.scroll() },
    this.spacer,
  );
  /** What was saved: an idea to do without, and what the run would have been. */
  ideas = h("span.sorts", {
    role: "group",
    "aria-label": "Without an idea",
    click: (event) => this.doWithout(closest(event, "button")?.textContent),
  });
  without = h("span", { role: "status" });
  saved = h("p.saved.flow", { hidden: true }, "without", this.ideas, this.without);
  saving: Saving | null = null;
  note = h("span.count.small.muted", "reading …");
  axis = h("canvas", { "aria-hidden": "true" });
  axisPainter = new CanvasPainter(this.axis);
  why = new WhySlow(this.board, (step, id) => this.goTo(step, id));
  alternative = tablesBox();
  element = h(
    "section.waterfall",
    { "aria-label": "Where did the time go?" },
    h("style", css),
    this.verdict,
    this.key,
    h(
      "div.columns",
      h(
        "div",
        h("div.head.flow", h("h2", "Where the time went", this.note), this.sorts),
        this.saved,
        this.scroller,
        this.axis,
      ),
      this.why.element,
    ),
    this.alternative,
  );
  model!: Model;
  /** What `times` is computed for. */
  known!: string | null;
  pitch!: number;
  left!: number;
  width!: number;
  right!: number;
  unit!: "us" | "steps";
  times!: RequestTime[];
  rows!: WaterfallRow[];
  late!: Map<RequestTime, Late>;
  longest!: number;
  totals!: Record<string, number>;

  constructor(board: Board) {
    super(board);
    board.tooltip.listen(
      this.bars,
      (event) => this.locate(event),
      (place) => this.describe(place),
    );
  }

  get order() {
    return this.chosen ?? (this.model.requests.length > MOST_SEEN ? "groups" : "slowest");
  }

  /** Draws what the requests would have taken without an idea; again, and it is gone. */
  doWithout(idea: string | null | undefined) {
    const saving = this.board.run.run?.saved?.find((one) => one.idea === idea) ?? null;
    this.saving = this.saving === saving ? null : saving;
    this.known = null;
    this.board.render();
  }

  sort(order: string) {
    this.chosen = order;
    this.scroller.scrollTop = 0;
    this.board.render();
  }

  /** Sets the model; called again when a live log has grown. */
  setModel(model: Model) {
    this.model = model;
    this.known = null;
  }

  layout() {
    const { unit, narrow } = this.board;
    const size = narrow ? "narrow" : "wide";
    this.pitch = PITCH[size];
    this.left = NAME[size];
    this.width = this.scroller.clientWidth / unit;
    this.right = this.width - END[size];
    this.read();
  }

  /** The times of all requests in the chosen order; computed when the view is opened. */
  read() {
    const { model, order } = this;
    const { slo } = this.board.store;
    const key = [order, slo.ttft, slo.itl, ...this.open].join("\n");
    if (this.known === key) return;
    const { waterfall } = model;
    this.unit = waterfall.unit;
    this.times = sortTimes(waterfall.all(), order === "groups" ? "slowest" : order, waterfall);
    this.known = key;
    this.rows =
      order === "groups" ? groupRows(this.times, this.open) : this.times.map((time) => ({ time }));
    this.late = new Map(this.times.map((time) => [time, lateness(model, time, slo)]));
    this.longest = this.times.reduce(
      (longest, time) => Math.max(longest, time.total, this.ghostOf(time)),
      1,
    );
    this.totals = totals(this.times);
    const part = partWords(model, this.board.view.lastOfLog);
    this.note.textContent = part ? `${part}; ${NOTE}` : NOTE;
  }

  get height() {
    const rows = Math.min(this.rows.length, MOST_SEEN);
    return TOP + rows * this.pitch;
  }

  /** The request that is explained: the selected one, or the first. */
  get shown() {
    const { selected } = this.board.store;
    return this.times.find(({ request }) => request.id === selected) ?? this.times[0];
  }

  /** The requests in the order of the rows. */
  get requests() {
    return this.rows.flatMap(({ time }) => time?.request.id ?? []);
  }

  x(time: number) {
    return this.left + ((this.right - this.left) * time) / this.longest;
  }

  draw() {
    this.read();
    const { board, painter, rows, pitch, height } = this;
    const { unit, theme } = board;
    this.spacer.style.height = `${(TOP + rows.length * pitch) * unit}px`;
    this.scroller.style.height = `${height * unit}px`;
    const scrolls = rows.length > MOST_SEEN;
    if (scrolls) this.scroller.tabIndex = 0;
    else this.scroller.removeAttribute("tabindex");
    painter.begin(this.width, height, unit, theme);
    for (const index of this.inSight()) this.drawRow(index);
    this.drawLimit();
    this.drawAxis();
    this.bars.dataset.plot = `${this.left} ${this.right} ${this.longest}`;
    this.bars.dataset.order = this.requests.join(" ");
  }

  get scrolled() {
    return this.scroller.scrollTop / this.board.unit;
  }

  inSight() {
    const first = Math.max(0, Math.floor((this.scrolled - TOP) / this.pitch));
    const last = Math.min(this.rows.length, first + MOST_SEEN + 2);
    return Array.from({ length: last - first }, (_, index) => first + index);
  }

  baseOf(index: number) {
    return TOP + index * this.pitch + (this.pitch + BAR) / 2 - this.scrolled;
  }

  drawRow(index: number) {
    const { painter, model, board, left, right } = this;
    const { theme } = board;
    const row = this.rows[index];
    const base = this.baseOf(index);
    if (row.group) return painter.line(0, base - BAR - 12, right, base - BAR - 12, theme.rule);
    const { time, told } = row;
    const late = this.late.get(time) as Late;
    if (time === this.shown) {
      painter.fill(0, base - BAR - 8, this.width, this.pitch, theme.band);
      painter.fill(0, base - BAR - 8, 3, this.pitch, theme.ink);
    }
    painter.line(left, base + 0.5, right, base + 0.5, theme.rule);
    if (told) painter.text(told, SWATCH, base - BAR - 2, { size: 10, color: theme.muted });
    const start = time.spans[0]?.start ?? 0;
    const parts = partsOf(time.spans, (at) => this.x(at - start));
    drawBar(painter, parts, base);
    drawLabels(painter, parts, base, (id) => model.tag(id).text);
    if (this.saving) this.drawGhost(time, base);
    if (time.firstToken !== null) this.drawFirstToken(this.x(time.firstToken), base, late.first);
    const total = timeWords(time.total, this.unit);
    painter.text(total, this.width - 4, base - 4, {
      size: 12,
      bold: late.first || late.gaps,
      align: "right",
    });
  }

  /** How long a request would have taken without the chosen idea. */
  ghostOf({ request, total }: RequestTime) {
    return total + (this.saving?.requests[request.id] ?? 0);
  }

  /** Time that was not spent, as an outline behind the bar; time that the idea cost, as a line under its end. */
  drawGhost(time: RequestTime, base: number) {
    const { painter, board } = this;
    const { ink } = board.theme;
    const [end, ghost] = [this.x(time.total), this.x(this.ghostOf(time))];
    if (Math.abs(ghost - end) < 1) return;
    if (ghost < end) return painter.line(ghost, base + 3.5, end, base + 3.5, ink, 2, [2, 2]);
    const { context } = painter;
    context.setLineDash([3, 3]);
    context.strokeStyle = ink;
    context.lineWidth = 1;
    context.strokeRect(end + 0.5, base - BAR / 2, ghost - end, BAR / 2);
    context.setLineDash([]);
  }

  drawFirstToken(x: number, base: number, isLate: boolean) {
    const { context } = this.painter;
    const { ground, ink } = this.board.theme;
    this.painter.line(x, base - BAR - 2, x, base + 2, ink, 1.5);
    context.beginPath();
    context.arc(x, base - BAR - 4, 2.6, 0, 7);
    context.fillStyle = isLate ? ink : ground;
    context.fill();
    context.strokeStyle = ink;
    context.lineWidth = 1.3;
    context.stroke();
  }

  drawLimit() {
    const { painter, height, board } = this;
    const { ttft } = board.store.slo;
    if (this.unit !== "us" || ttft > this.longest) return;
    const x = this.x(ttft);
    painter.line(x, 14, x, height, board.theme.ink, 1, [3, 3]);
    const words = `SLO: first token within ${timeWords(ttft, this.unit)}`;
    drawFlag(painter, words, x, 11, this.width);
  }

  drawAxis() {
    const { axisPainter: painter, longest, board } = this;
    painter.begin(this.width, AXIS, board.unit, board.theme);
    const { faint, muted } = board.theme;
    const step = roundUnit((this.right - this.left) / longest, 90);
    const first = `${timeWords(0, this.unit)} after arrival`;
    const free = this.x(0) + painter.measure(first) + 8;
    for (let at = 0; at <= longest; at += step) {
      const x = this.x(at);
      painter.line(x, 2, x, 7, faint);
      const words = at ? timeWords(at, this.unit) : first;
      if (at && x - painter.measure(words) / 2 < free) continue;
      painter.text(words, x, 19, { color: muted, align: at ? "center" : "left" });
    }
  }

  write() {
    const { board, model } = this;
    const context = contextOf(board);
    patchChildren(this.verdict, wordNodes(verdict(model, this.times, board.store.slo), context));
    this.writeKey();
    this.writeSaved();
    this.writeNames(context);
    for (const button of this.sorts.children as Iterable<HTMLElement>)
      button.setAttribute("aria-pressed", String(button.dataset.sort === this.order));
    (this.sorts.firstElementChild as HTMLElement).hidden = this.times.length <= MOST_SEEN;
    this.why.write(this.shown, context, this.late.get(this.shown) as Late);
    this.bars.setAttribute("aria-label", `Bars of ${this.times.length} requests; tables follow`);
  }

  /** The ideas that the run could have done without, and what that would have cost. */
  writeSaved() {
    const saved = (this.unit === "us" && this.board.run.run?.saved) || [];
    this.saved.hidden = !saved.length;
    const buttons = saved.map((one) =>
      h("button", { "aria-pressed": String(one === this.saving) }, one.idea),
    );
    patchChildren(this.ideas, buttons);
    const { saving } = this;
    patchChildren(this.without, saving ? [saving.words, " ", levelDot("inferred")] : []);
  }

  /** Each cause with its form and its share of all time, family by family. */
  writeKey() {
    const { board } = this;
    const all = Object.values(this.totals).reduce((sum, one) => sum + one, 0);
    const key = `${board.theme.name} ${board.unit} ${Object.entries(this.totals).join(" ")}`;
    if (this.keyed === key) return;
    this.keyed = key;
    let family: string | null = null;
    const items = Object.entries(this.totals).flatMap(([cause, time]) => {
      const begins = family !== familyOf(cause);
      family = familyOf(cause);
      const title = begins ? [h("li.muted", family)] : [];
      return [
        ...title,
        h("li", this.swatch(cause), causeWords(cause), " ", h("b", share(time, all))),
      ];
    });
    this.key.replaceChildren(...items);
  }

  swatch(cause: string) {
    const canvas = h("canvas", { "aria-hidden": "true" });
    const painter = new CanvasPainter(canvas);
    painter.begin(18, 16, this.board.unit, this.board.theme);
    drawBar(painter, [{ cause, about: null, from: 0, to: 18 }], 16, { high: 16 });
    return canvas;
  }

  /** The names of the rows in sight, each a button. */
  writeNames(context: WaterfallContext) {
    const { unit } = this.board;
    const names = this.inSight().map((index) => {
      const { time, group } = this.rows[index];
      if (group) return this.head(group, index);
      const { request } = time;
      const shorter = this.painter.cutName(request.name, this.left - SWATCH, { bold: true });
      const name = made(chip(request.id, context, shorter));
      if (shorter !== request.name) {
        name.title = request.name;
        name.setAttribute("aria-label", request.name);
      }
      name.style.top = `${(TOP + index * this.pitch + (this.pitch + BAR) / 2 - 19) * unit}px`;
      return name;
    });
    patchChildren(this.names, names);
  }

  /** A group's line. */
  head({ name, times, told }: TimeGroup, index: number) {
    const words = told.map(({ name, time }) => `${name} ${timeWords(time.total, this.unit)}`);
    const isOpen = this.open.has(name);
    const head = h(
      "button.group",
      { "data-group": name, "aria-expanded": String(isOpen) },
      h("b", `${isOpen ? "▾" : "▸"} ${visible(name)}`),
      h("span.muted", `, ${plural(times.length, "request")}: ${words.join(", ")}`),
    );
    const { unit } = this.board;
    head.style.top = `${(TOP + index * this.pitch + (this.pitch - 24) / 2) * unit}px`;
    return head;
  }

  openGroup(event: Event) {
    const { group } = closest(event, "[data-group]")?.dataset ?? {};
    if (group === undefined) return;
    if (!this.open.delete(group)) this.open.add(group);
    this.board.render();
  }

  tables() {
    this.read();
    const rows = this.times.slice(0, MOST_IN_TABLE).map((time) => {
      const { request, total, work, lost, ttft } = time;
      const waited = Math.max(0, total - work - lost);
      const in_ = (one: number) => timeWords(one, this.unit);
      const late = this.late.get(time) as Late;
      return [
        this.model.tag(request.id).text,
        in_(total),
        ttft === null ? "no value" : in_(ttft),
        in_(work),
        in_(lost),
        in_(waited),
        late.first || late.gaps ? "outside" : "within",
      ];
    });
    const heads = [
      "request",
      "total",
      "first token",
      "own work",
      "lost",
      "waiting and other",
      "SLO",
    ];
    const causes = Object.entries(this.totals).map(([cause, time]) => [
      causeName(cause),
      timeWords(time, this.unit),
    ]);
    return [
      table("Where the time went, by request", heads, rows, this.times.length),
      table("Time by cause, all requests", ["cause", "time"], causes),
    ];
  }

  // The pointer

  /** The row under the pointer and the span in it, if it has one there. */
  locate(event: MouseEvent) {
    const [x, y] = pointIn(this.bars, event, this.board.unit);
    const { time } = this.rows?.[Math.floor((y - TOP + this.scrolled) / this.pitch)] ?? {};
    if (!time?.spans.length || y < TOP) return null;
    const at = time.spans[0].start + ((x - this.left) / (this.right - this.left)) * this.longest;
    // A click may miss a narrow bar by a pixel.
    const slack = this.longest / (this.right - this.left);
    const span =
      time.spans.find(({ start, end }) => start <= at && at < end) ??
      time.spans.find(({ start, end }) => start - slack <= at && at < end + slack);
    return { time, span };
  }

  describe({ time, span }: { time: RequestTime; span: Span | undefined }) {
    const name = this.model.tag(time.request.id).text;
    if (!span) return [`${name}: ${timeWords(time.total, this.unit)}`];
    const { cause, about, step } = span;
    const spent = timeWords(span.end - span.start, this.unit);
    const of =
      about === null
        ? ""
        : cause === "preempted"
          ? `; ${this.model.tag(about).text} needed its blocks`
          : `, behind ${this.model.tag(about).text}`;
    return [`${name}: ${causeWords(cause)}${of}`, `${spent} in step ${step}; click to go there`];
  }

  clicked(event: MouseEvent) {
    const place = this.locate(event);
    if (place?.span) this.goTo(place.span.step, place.time.request.id);
    else if (place) this.board.select(place.time.request.id);
  }

  scroll() {
    if (!this.times) return;
    this.draw();
    this.writeNames(contextOf(this.board));
  }

  /** Leaves the waterfall for a step and its decision. */
  goTo(step: number, id: number) {
    const { board } = this;
    board.tooltip.hide();
    board.store.set({ selected: id });
    board.goTo(step);
    board.showOnly(null);
    board.root.focus({ preventScroll: true });
  }
}

/** Returns a context without a frame, in which a name's mark does not depend on the step. */
function contextOf({ model, theme, store }: Board): WaterfallContext {
  return { model, theme, selected: store.selected };
}
