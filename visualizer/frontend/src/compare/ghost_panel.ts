/** The picture of two runs with its pointer and its keys. */

import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, plural } from "../drawing/html.ts";
import { type Axis, type Scale, stepAxis, timeScale } from "../drawing/time_axis.ts";
import { wallAxis } from "../drawing/wall_axis.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import type { At, ComparisonPage, Facts } from "./compare.ts";
import { type GhostLayout, ghostLayout, type Spot } from "./ghost_layout.ts";
import { drawGhost, shadesOf } from "./ghost_picture.ts";
import { type GhostRow, gapWords, ghostRows, shownRows, spanOf } from "./ghost_rows.ts";

type FoundRow = Exclude<Spot, { fork: true }> & { span: RequestSpan; step: number };

/** under the pointer */
type Found = { fork: true } | FoundRow;

const NARROW = 720;

export class GhostPanel {
  page: ComparisonPage;
  canvas = h("canvas", { role: "img" });
  painter: CanvasPainter;
  said = h("p.for-screen-readers", { role: "status" });
  element: HTMLDivElement;
  axes!: Axis[];
  kind!: Axis["kind"];
  ends!: number[];
  shown!: GhostRow[];
  /** Rows that are left out. */
  left!: number;
  layout!: GhostLayout;
  scales!: Scale[];
  unit!: number;
  forkX!: number | null;

  constructor(page: ComparisonPage) {
    this.page = page;
    this.painter = new CanvasPainter(this.canvas);
    this.element = h(
      "div.ghost",
      { tabindex: 0, role: "group", "aria-label": "Both runs in one picture" },
      this.canvas,
      this.said,
    );
    this.measureTime(page.facts.axis);
    this.listen();
  }

  /** Computes the axis, `kind` or steps if a log has no times, and the rows on it. */
  measureTime(kind: Axis["kind"]) {
    const { models, facts } = this.page;
    const byTime = kind === "time" ? models.map((model) => wallAxis(model)) : [null];
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
    this.page.write();
  }

  get selectedRow() {
    const { selected } = this.page.views[0].store;
    return this.shown.findIndex(({ a }) => a && a.id === selected);
  }

  draw(unit: number) {
    const { page, painter, shown, axes, kind } = this;
    const { models, facts, sheet } = page;
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
    painter.begin(width, this.layout.height, unit, sheet.theme);
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
      selected: this.selectedRow,
    });
    this.write();
  }

  write() {
    const { canvas, shown, page, kind } = this;
    const { names, difference } = page.facts;
    const { theme } = page.sheet;
    for (const [name, colour] of Object.entries(shadesOf(theme)))
      page.sheet.root.style.setProperty(`--${name}`, colour);
    const parts = difference ? `; they part in step ${difference.step}` : "";
    canvas.setAttribute(
      "aria-label",
      `${names.join(" and ")} on one axis of ${kind}: ${plural(shown.length, "request")}${parts}. ` +
        "A table of all requests follows.",
    );
    Object.assign(canvas.dataset, {
      shown: shown.map((row) => spanOf(row).id).join(" "),
      states: shown.map(({ state }) => state).join(" "),
      gaps: shown.map(({ gap }) => Math.round(gap)).join(" "),
      plot: `${this.layout.left} ${this.layout.right}`,
      rows: `${this.layout.top} ${this.layout.pitch}`,
      fork: this.forkX == null ? "" : Math.round(this.forkX),
    });
  }

  /** Selects the row above or below. */
  neighbour(delta: number) {
    const { shown, page } = this;
    const at = this.selectedRow;
    const next = at < 0 ? (delta > 0 ? 0 : shown.length - 1) : at + delta;
    const row = shown[next];
    if (!row?.a) return;
    page.views[0].store.set({ selected: row.a.id });
    this.said.textContent = `${row.a.name}: ${gapWords(row, this.kind, page.facts.names)}`;
  }

  // The pointer and the keys

  locate(event: MouseEvent): Found | null {
    const box = this.canvas.getBoundingClientRect();
    const x = (event.clientX - box.left) / this.unit;
    const y = (event.clientY - box.top) / this.unit;
    const found = this.layout?.at(x, y, this.forkX) ?? null;
    if (!found || found.fork) return found;
    const row = this.shown[found.row];
    const side = row.a && (found.side === 0 || !row.b) ? 0 : 1;
    const span = (side ? row.b : row.a) as RequestSpan;
    const { firstStep, lastStep } = this.page.models[side];
    const step = Math.min(Math.max(this.scales[side].stepAt(x), firstStep), lastStep);
    return { ...found, side, span, step };
  }

  listen() {
    const { page, element, canvas } = this;
    const { signal, facts } = page;
    const open = (side: number, place: At) => page.show(side ? "b" : "a", place);
    canvas.addEventListener(
      "click",
      (event) => {
        const found = this.locate(event);
        if (!found) return;
        if (found.fork) open(0, { step: facts.difference?.step });
        else if (found.inPlot) open(found.side, { step: found.step, selected: found.span.id });
        else if (found.side === 0) page.views[0].store.set({ selected: found.span.id });
      },
      { signal },
    );
    canvas.addEventListener(
      "pointermove",
      (event) => {
        const found = this.locate(event);
        canvas.style.cursor = found ? "pointer" : "";
        canvas.title = titleOf(found, facts);
      },
      { signal },
    );
    const keys: Record<string, () => unknown> = {
      ArrowUp: () => this.neighbour(-1),
      ArrowDown: () => this.neighbour(1),
      a: () => page.show("a"),
      b: () => page.show("b"),
      f: () => facts.difference && open(0, { step: facts.difference.step }),
      x: () => this.changeAxis(),
      t: () => page.toggleTable(),
      Escape: () => page.views[0].store.set({ selected: null }),
    };
    element.addEventListener(
      "keydown",
      (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
        if (!act) return;
        event.preventDefault();
        act();
      },
      { signal },
    );
  }
}

function titleOf(found: Found | null, { names, difference }: Facts) {
  if (!found) return "";
  if (found.fork) return `Open step ${difference?.step} on the board of ${names[0]}`;
  return found.inPlot
    ? `${found.span.name}: open step ${found.step} on the board of ${names[found.side]}`
    : "";
}
