/** The picture of two runs with its pointer and its keys. */

import { bindKeys } from "../board/keys.ts";
import { Part } from "../board/part.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, plural, pointIn } from "../drawing/html.ts";
import { type Axis, type Scale, stepAxis, timeScale } from "../drawing/time_axis.ts";
import { type Break, busyAxis } from "../drawing/wall_axis.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import type { At, ComparisonPage, Facts } from "./compare.ts";
import { type GhostLayout, ghostLayout, type Spot } from "./ghost_layout.ts";
import { drawGhost, shadesOf } from "./ghost_picture.ts";
import { type GhostRow, gapWords, ghostRows, shownRows, spanOf } from "./ghost_rows.ts";

type FoundRow = Exclude<Spot, { fork: true }> & { span: RequestSpan; step: number };

/** under the pointer */
type Found = { fork: true } | FoundRow;

/** What the picture asks of its page. */
export type GhostHost = Pick<
  ComparisonPage,
  "facts" | "models" | "views" | "theme" | "root" | "render" | "toggleTable"
> & { show: (what: "a" | "b", place?: At) => unknown };

const NARROW = 720;

export class GhostPanel extends Part<GhostHost> {
  canvas = h("canvas", {
    role: "img",
    click: (event) => this.clicked(event),
    pointermove: (event) => this.hovered(event),
  });
  painter = new CanvasPainter(this.canvas);
  said = h("p.for-screen-readers", { role: "status" });
  element = h(
    "div.ghost",
    { tabindex: 0, role: "group", "aria-label": "Both runs in one picture" },
    this.canvas,
    this.said,
  );
  /** Of busy time, or of steps. */
  axes!: (Axis & { breaks?: Break[] })[];
  kind!: Axis["kind"];
  ends!: number[];
  shown!: GhostRow[];
  /** Rows that are left out. */
  left!: number;
  layout!: GhostLayout;
  scales!: Scale[];
  unit!: number;
  forkX!: number | null;

  constructor(page: GhostHost) {
    super(page);
    this.measureTime(page.facts.axis);
    bindKeys(this.element, {
      ArrowUp: () => this.neighbour(-1),
      ArrowDown: () => this.neighbour(1),
      a: () => page.show("a"),
      b: () => page.show("b"),
      f: () => this.openFork(),
      x: () => this.changeAxis(),
      t: () => page.toggleTable(),
      Escape: () => page.views[0].store.set({ selected: null }),
    });
  }

  /** Computes the axis, `kind` or steps if a log has no times, and the rows on it. */
  measureTime(kind: Axis["kind"]) {
    const { models, facts } = this.board;
    const byTime = kind === "time" ? models.map((model) => busyAxis(model)) : [null];
    this.axes = byTime.every((axis) => axis !== null)
      ? byTime
      : models.map(({ firstStep, lastStep }) => stepAxis({ first: firstStep, last: lastStep }));
    this.kind = this.axes[0].kind;
    this.ends = models.map(({ lastStep }, side) => this.axes[side].end(lastStep));
    const { shown, left } = shownRows(ghostRows(models, this.axes, facts));
    this.shown = shown;
    this.left = left;
  }

  changeAxis() {
    this.measureTime(this.kind === "time" ? "steps" : "time");
    this.board.render();
  }

  get selectedRow() {
    const { selected } = this.board.views[0].store;
    return this.shown.findIndex(({ a }) => a && a.id === selected);
  }

  draw(unit: number) {
    const { board: page, painter, shown, axes, kind } = this;
    const { models, facts } = page;
    const width = this.element.clientWidth / unit;
    const narrow = width < NARROW;
    const { names } = facts;
    const widest = (words: string[], style: { bold: boolean }) =>
      Math.max(0, ...words.map((one) => painter.measure(one, style)));
    this.layout = ghostLayout({
      width,
      count: shown.length,
      narrow,
      names: widest(
        shown.map((row) => spanOf(row).name),
        { bold: true },
      ),
      words: widest(
        shown.map((row) => gapWords(row, kind, names)),
        { bold: true },
      ),
    });
    const { left, right } = this.layout;
    const view = {
      from: Math.min(...axes.map(({ from }) => from)),
      to: Math.max(...axes.map(({ to }) => to)),
    };
    this.scales = axes.map((axis) => timeScale(view, left, right, axis));
    this.unit = unit;
    painter.begin(width, this.layout.height, unit, page.theme);
    const fork = facts.difference?.step ?? null;
    this.forkX = fork == null ? null : this.scales[0].x(fork);
    drawGhost(painter, {
      models,
      names,
      fork,
      narrow,
      rows: shown,
      scales: this.scales,
      layout: this.layout,
      ends: this.ends,
      breaks: axes.map(({ breaks = [] }) => breaks),
      selected: this.selectedRow,
    });
    this.write();
  }

  write() {
    const { canvas, shown, axes, board: page, kind } = this;
    const { names, difference } = page.facts;
    const { theme } = page;
    for (const [name, colour] of Object.entries(shadesOf(theme)))
      page.root.style.setProperty(`--${name}`, colour);
    const parts = difference ? `; they part in step ${difference.step}` : "";
    canvas.setAttribute(
      "aria-label",
      `${names.join(" and ")} on one axis of ${kind === "time" ? "busy time" : kind}: ${plural(shown.length, "request")}${parts}. ` +
        "A table of all requests follows.",
    );
    Object.assign(canvas.dataset, {
      shown: shown.map((row) => spanOf(row).id).join(" "),
      states: shown.map(({ state }) => state).join(" "),
      gaps: shown.map(({ gap }) => Math.round(gap)).join(" "),
      breaks: axes.map(({ breaks = [] }) => breaks.length).join(" "),
      plot: `${this.layout.left} ${this.layout.right}`,
      rows: `${this.layout.top} ${this.layout.pitch}`,
      fork: this.forkX == null ? "" : Math.round(this.forkX),
    });
  }

  /** Selects the row above or below. */
  neighbour(delta: number) {
    const { shown, board: page } = this;
    const at = this.selectedRow;
    const next = at < 0 ? (delta > 0 ? 0 : shown.length - 1) : at + delta;
    const row = shown[next];
    if (!row?.a) return;
    page.views[0].store.set({ selected: row.a.id });
    this.said.textContent = `${row.a.name}: ${gapWords(row, this.kind, page.facts.names)}`;
  }

  // The pointer and the keys

  locate(event: MouseEvent): Found | null {
    const [x, y] = pointIn(this.canvas, event, this.unit);
    const found = this.layout?.at(x, y, this.forkX) ?? null;
    if (!found || found.fork) return found;
    const row = this.shown[found.row];
    const side = row.a && (found.side === 0 || !row.b) ? 0 : 1;
    const span = (side ? row.b : row.a) as RequestSpan;
    const { firstStep, lastStep } = this.board.models[side];
    const step = Math.min(Math.max(this.scales[side].stepAt(x), firstStep), lastStep);
    return { ...found, side, span, step };
  }

  open(side: number, place: At) {
    return this.board.show(side ? "b" : "a", place);
  }

  openFork() {
    const { difference } = this.board.facts;
    if (difference) this.open(0, { step: difference.step });
  }

  clicked(event: MouseEvent) {
    const found = this.locate(event);
    if (!found) return;
    if (found.fork) this.openFork();
    else if (found.inPlot) this.open(found.side, { step: found.step, selected: found.span.id });
    else if (found.side === 0) this.board.views[0].store.set({ selected: found.span.id });
  }

  hovered(event: MouseEvent) {
    const found = this.locate(event);
    this.canvas.style.cursor = found ? "pointer" : "";
    this.canvas.title = titleOf(found, this.board.facts);
  }
}

function titleOf(found: Found | null, { names, difference }: Facts) {
  if (!found) return "";
  if (found.fork) return `Open step ${difference?.step} on the board of ${names[0]}`;
  return found.inPlot
    ? `${found.span.name}: open step ${found.step} on the board of ${names[found.side]}`
    : "";
}
