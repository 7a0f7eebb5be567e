/**
 * The scheduler panel: the decisions of a step in order, with tokens, remaining budget and reasons, and the
 * function of the engine that made the decision under the pointer.
 */

import type { Board, BoardContext, Panel } from "../board/board.ts";
import { Part } from "../board/part.ts";
import { patchChildren, v } from "../board/patch_children.ts";
import { labAddress, sourceOf } from "../board/sources.ts";
import type { CanvasPainter } from "../drawing/canvas_painter.ts";
import { closest, h, plural, setAttribute, visible } from "../drawing/html.ts";
import { withTerms } from "../drawing/terms.ts";
import { breakLines, drawLines, type Words } from "../drawing/text_lines.ts";
import { chip, wordNodes } from "../drawing/words_html.ts";
import type { Decision } from "../model/decisions.ts";
import type { Frame } from "../model/frame.ts";
import { type Fact, knowledgeWords, lacks } from "../model/knowledge.ts";
import { draftsOf } from "../model/tokens.ts";
import { baseline, Painted, paintTitle, SWATCH } from "./painted.ts";

type Line = Pick<Decision, "kind" | "spans"> & Partial<Decision>;

/** The most requests named in one line; two thousand waiting requests would fill the page. */
const MOST_NAMED = 24;
const NAME = { size: 12.5, bold: true };
// px, as in board.css
const LINE = 17;
const PADDING = 1.5; // above and below the lines of a row
const HEAD = 22;
const WHO = { left: 8, beside: 33.5 }; // of a name: its place, and what is beside it
const BETWEEN_STEPS = new Set(["arrived", "aborted"]);

export class DecisionsPanel extends Part {
  reads: Panel["reads"] = ["selected"];
  list = h("div", {
    click: (event) => this.look(event),
    focusin: (event) => this.look(event),
    pointerover: (event) => this.look(event),
  });
  picture = new Painted(this.list);
  painted = [this.picture];
  /** The size of the list in board pixels, from the browser's last layout. */
  room = { width: 300, height: 0 };
  watched: Element | null = null;
  observer = new ResizeObserver(([{ contentRect }]) => this.resized(contentRect));
  source = h("p.note.source");
  sourcePicture = new Painted(this.source);
  element = h(
    "section.decisions",
    { "aria-label": "Decisions" },
    this.picture.element,
    this.sourcePicture.element,
  );
  lines!: Line[];

  constructor(board: Board) {
    super(board);
    this.painted.push(this.sourcePicture);
    board.signal.addEventListener("abort", () => this.observer.disconnect());
  }

  look(event: Event) {
    const row = closest(event, "tr[data-kind]");
    if (row) this.writeSource(Number(row.dataset.index));
  }

  write() {
    const { board } = this;
    this.lines = linesOf(board.frame);
    patchChildren(this.list, decisionNodes(this.lines, board.context(), this.picture.painter));
    this.writeSource(this.lines.findIndex(({ hot }) => hot));
    const list = scrolledIn(this.element);
    if (list && list !== this.watched) this.watch(list);
    // After all text is written: reading the layout now would compute it twice.
    queueMicrotask(() => this.showMoment());
  }

  /** Paints the rows in sight, as `write` and `showMoment` would show them. */
  paint() {
    const { board, room } = this;
    const context = board.context();
    const { frame, theme } = board;
    const { muted: color, band, ink } = theme;
    const lines = linesOf(frame);
    this.lines = lines;
    const counts = countsOf(context);
    const height = HEAD + room.height;
    const painter = this.picture.begin(room.width, height, board, counts);
    paintTitle(painter, TITLE, counts);
    const beside = WHO.beside + widestName(lines, context, painter);
    const { size } = NAME;
    const moment = lines.findIndex(({ hot }) => hot);
    let bottom = 0;
    let seen = moment < 0 ? room.height : Infinity; // how far the rows in sight reach
    const rows = lines.flatMap((one, i) => {
      if (bottom >= seen) return [];
      if (i === moment) seen = Math.max(room.height, bottom + room.height / 2);
      const words = wordsOf(one, context);
      const isWide = one.request == null || !!one.requests;
      const budget = one.tokens == null || isWide ? "" : budgetOf(one);
      const right = budget && painter.measure(budget, { size }) + WHO.left;
      const x = isWide ? WHO.left : beside;
      const width = room.width - x - Number(right);
      const broken = breakLines(painter, words, { width, size, swatch: SWATCH });
      const row = { one, broken, x, budget, isWide, top: bottom };
      bottom += broken.length * LINE + 2 * PADDING;
      return [row];
    });
    const end = rows[moment + 1]?.top ?? bottom;
    const middle = rows[moment]?.top - room.height / 2;
    const scrolled = moment < 0 || end <= room.height ? 0 : Math.min(middle, bottom - room.height);
    const drawRow = ({ one, broken, x, budget, isWide, top }: (typeof rows)[number]) => {
      const y = HEAD + top - scrolled;
      const tall = broken.length * LINE + 2 * PADDING;
      if (y + tall <= HEAD || y >= height) return;
      if (one.hot) {
        painter.fill(0, Math.max(HEAD, y), room.width, tall, band);
        painter.fill(0, Math.max(HEAD, y), 3, tall, ink);
      }
      const first = Math.max(0, Math.ceil((HEAD - y - PADDING) / LINE));
      const seen = Math.floor((height - y - PADDING) / LINE);
      const form = { size, line: LINE, swatch: SWATCH, ...laneIn(context) };
      const base = Math.round(y + PADDING + baseline(size, LINE));
      drawLines(painter, broken.slice(first, seen), { ...form, x, y: base + first * LINE });
      if (first > 0 || seen < 1 || isWide || one.request == null) return;
      const who = breakLines(painter, [nameOf(one.request, context)], { ...form, width: Infinity });
      drawLines(painter, who, { ...form, x: WHO.left, y: base });
      if (budget) painter.text(budget, room.width, base, { size, color, align: "right" });
    };
    painter.textsLast(() => rows.forEach(drawRow));
    this.#paintSource(moment);
  }

  #paintSource(index: number) {
    const { board, room, lines } = this;
    const line = lines[index];
    const source = line && sourceOf(board.frame, line);
    const where = source ? `${source.file}::${source.name}` : "";
    const painter = this.sourcePicture.begin(room.width, 36, board, where);
    if (!source) return;
    const { muted: color } = board.theme;
    const kind = `${line.kind}: `;
    const base = 6 + baseline(11, 15);
    painter.text(kind, 0, base, { color });
    const style = { size: 11, mono: !labAddress(source.file, board.project) };
    let [x, y] = [painter.measure(kind), base];
    for (const part of where.split(/(?<=\/)/)) {
      const width = painter.measure(part, style);
      if (x + width > room.width) [x, y] = [0, y + 15];
      painter.text(part, x, y, style);
      x += width;
    }
  }

  watch(list: HTMLElement) {
    this.watched = list;
    this.observer.disconnect();
    this.observer.observe(list);
    list.onscroll = () => hideCutLines(list, this.board.unit);
  }

  /** Fits the list to another size. */
  resized({ width, height }: DOMRectReadOnly) {
    const { unit } = this.board;
    this.room = { width: width / unit, height: height / unit };
    if (this.picture.canvas.hidden) this.showMoment();
    else requestAnimationFrame(() => this.picture.canvas.hidden || this.paint());
  }

  /** Scrolls a long list to its highlighted row, without scrolling the page. */
  showMoment() {
    const { element, board } = this;
    const list = scrolledIn(element);
    const moment = element.querySelector(".moment") as HTMLElement | null;
    if (!list) return;
    const isBelow = moment && moment.offsetTop + moment.offsetHeight > list.clientHeight;
    const top = isBelow ? moment.offsetTop - list.clientHeight / 2 : 0;
    if (list.scrollTop !== top) list.scrollTop = top;
    hideCutLines(list, board.unit);
  }

  /** The function that made a decision, as a link if JupyterLab can open it, otherwise as a path to copy. */
  writeSource(index: number) {
    const { frame, project } = this.board;
    const line = this.lines[index];
    const source = line && sourceOf(frame, line);
    if (!source) return patchChildren(this.source, ["\u00a0"]);
    const { file, name } = source;
    const href = labAddress(file, project);
    // The path may break after a slash only.
    const parts = `${file}::${name}`.split(/(?<=\/)/);
    const path = parts.flatMap((part) => [part, v("wbr")]);
    const where = href
      ? v("a", { href, target: "_blank", rel: "noopener" }, ...path)
      : v("code", { tabindex: "0" }, ...path);
    patchChildren(this.source, [v("span.muted", `${line.kind}: `), where]);
    return undefined;
  }
}

/** The list that scrolls. */
function scrolledIn(panel: HTMLElement) {
  return panel.querySelector(".scroll") as HTMLElement | null;
}

/** Events between the steps come before the decisions, those of the commit after them. */
function linesOf(frame: Frame): Line[] {
  const before = frame.outcomes.filter(({ kind }) => BETWEEN_STEPS.has(kind));
  const after = frame.outcomes.filter(({ kind }) => !BETWEEN_STEPS.has(kind));
  return [...grouped(before), ...frame.decisions, ...after];
}

/** Hides the lines of text that the upper and the lower edge of the list cut. */
function hideCutLines(list: HTMLElement, unit: number) {
  const top = list.scrollTop;
  const bottom = top + list.clientHeight;
  const rows = [...list.querySelectorAll("tr")];
  const cutAt = (edge: number) => {
    const row = rows.find((one) => {
      const { offsetTop, offsetHeight } = one;
      return offsetTop + 1 < edge && offsetTop + offsetHeight > edge + 2;
    });
    return row ? { row, seen: (edge - row.offsetTop) / unit - PADDING } : null;
  };
  const [above, below] = [cutAt(top), cutAt(bottom)];
  // A row of several lines is cut between two lines.
  const hidden = above ? Math.ceil(above.seen / LINE) * LINE - above.seen : 0;
  const under = !below ? 0 : below.seen < LINE ? below.seen + PADDING : below.seen % LINE;
  clip(list, above || below ? `inset(${hidden * unit}px 0px ${under * unit}px)` : "");
}

/** As an attribute, because Chromium leaves an empty one where a style that it has not written yet is removed. */
function clip(list: HTMLElement, path: string) {
  if (path) setAttribute(list, "style", `clip-path: ${path}`);
  else if (list.hasAttribute("style")) list.removeAttribute("style");
}

const TITLE = "Decisions, in order";

function countsOf({ model, frame }: BoardContext) {
  const { held, all } = frame.seats;
  const isUnknown = (...facts: Fact[]) => lacks(model, ...facts) && knowledgeWords.unknown;
  const seats = isUnknown("settings", "admissions") || `${held} of ${plural(all, "seat")} taken`;
  return `${seats}, ${isUnknown("queue") || frame.waitingCount} waiting`;
}

const widestName = (lines: Line[], { model }: BoardContext, ruler: CanvasPainter) =>
  Math.max(
    0,
    ...lines.map(({ request, requests }) =>
      request == null || requests ? 0 : ruler.measure(model.tag(request).text, NAME),
    ),
  );

/** The nodes of the list. */
function decisionNodes(lines: Line[], context: BoardContext, ruler: CanvasPainter) {
  const rows = lines.map((line, i) => row(line, i, context));
  const style = `--name: ${widestName(lines, context, ruler)}`;
  const none = !lines.length && v("caption.muted", NONE);
  const table = v("table", { style }, v("tbody", ...rows), none);
  return [
    v("h2", TITLE, v("span.count.small.muted", ...withTerms(countsOf(context)))),
    v("div.scroll", { tabindex: "0", role: "group", "aria-label": "Decisions" }, table),
  ];
}

const NONE = "No decision in this step.";
const budgetOf = ({ tokens, left }: Line) => `${plural(Number(tokens), "token")}, ${left} left`;
const laneIn = ({ model, frame, selected }: BoardContext) => ({
  selected,
  laneOf: (id: number) => model.laneOf(id, frame.step),
});
const nameOf = (request: number, { model }: BoardContext) => ({
  text: model.request(request)?.name ?? `r${request}`,
  request,
});

/** The words of a line. One about several requests begins with the first of them and the selected one. */
function wordsOf({ spans, request, requests, tokens }: Line, context: BoardContext): Words[] {
  if (requests || request == null) {
    const all = requests ?? [];
    const named = all.filter((id, i) => i < MOST_NAMED || id === context.selected);
    const names = named.flatMap((id) => [nameOf(id, context), { text: " " }]);
    const rest = all.length - named.length;
    return [...names, { text: rest ? `and ${rest.toLocaleString("en")} more ` : "" }, ...spans];
  }
  return tokens == null ? spans : [...spans, { text: draftWords(context.frame, request) }];
}

/** Joins three or more arrivals into one line that names the requests. */
function grouped(outcomes: Decision[]): Line[] {
  const arrivals = outcomes.filter(({ kind }) => kind === "arrived");
  if (arrivals.length < 3) return outcomes;
  const requests = arrivals.map(({ request }) => Number(request));
  const together = { kind: "arrived", requests, spans: [{ text: "arrive" }] };
  return [together, ...outcomes.filter(({ kind }) => kind !== "arrived")];
}

function row(decision: Line, index: number, context: BoardContext) {
  const attributes = {
    "data-index": index,
    class: decision.hot ? "moment" : null,
    "data-kind": decision.kind,
    "data-heat": decision.heat ?? null,
    "data-request": decision.request ?? null,
  };
  const words = wordNodes(wordsOf(decision, context), context);
  if (decision.requests || decision.request == null)
    return v("tr", attributes, v("td.wide", { colspan: 3 }, ...words));
  const who = v("td.who", chip(decision.request, context));
  if (decision.tokens == null)
    return v("tr", attributes, who, v("td.what", { colspan: 2 }, ...words));
  const budget = v("td.budget.muted", budgetOf(decision));
  return v("tr", attributes, who, v("td.what", ...words), budget);
}

const MOST_DRAFTS = 8;
const SIGNS = { kept: "✓", refused: "✗" } as Record<string, string>;

/** ": ✓ apple ✗ and – a": what became of each draft of a request, beside the decision to check it. */
function draftWords(frame: Frame, request: number) {
  const checked = draftsOf(frame, request);
  if (!checked) return "";
  const shown = checked.drafts.slice(0, MOST_DRAFTS).map(({ text, token, fate }) => {
    const written = text == null ? `token ${token}` : visible(text.trim() || text);
    return ` ${SIGNS[fate] ?? "–"} ${written}`;
  });
  return `:${shown.join("")}${checked.drafts.length > MOST_DRAFTS ? " …" : ""}`;
}
