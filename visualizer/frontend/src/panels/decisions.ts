/**
 * The scheduler panel: the decisions of a step in order, with tokens, remaining budget and reasons, and the
 * function of the engine that made the decision under the pointer.
 *
 * A batch of two hundred requests has two hundred rows, most of them alike and not visible. Writing them all
 * takes longer than drawing all pictures, so at first only the visible rows are written. The others follow when
 * the user stops moving; their height is reserved, so nothing moves.
 */

import type { Board, BoardContext, Panel } from "../board/board.ts";
import { Part } from "../board/part.ts";
import { patchChildren, v } from "../board/patch_children.ts";
import { labAddress, sourceOf } from "../board/sources.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { closest, h, plural, setAttribute, visible } from "../drawing/html.ts";
import { chip, wordNodes } from "../drawing/words_html.ts";
import type { Decision } from "../model/decisions.ts";
import type { Frame } from "../model/frame.ts";
import { type Fact, knowledgeWords, lacks } from "../model/knowledge.ts";
import { draftsOf } from "../model/tokens.ts";

type Line = Pick<Decision, "kind" | "spans"> & Partial<Decision>;

/** of the table, with the lines from `first` to `last` */
type Body = { first: number; last: number; plain: boolean };

/** The most requests named in one line; two thousand waiting requests would fill the page. */
const MOST_NAMED = 24;
const NAME = { size: 12.5, bold: true };
const SEEN = 17; // rows of the list that are written at first, if each has one line; more in a higher list
const LINE = 17; // px
const PADDING = 1.5; // px above and below the lines of a row
const ROW = LINE + 2 * PADDING;
// At most, in px: a letter, and what stands beside the words of a row; in letters: a name and its swatch.
const LETTER = 8;
const BESIDE = 200;
const NAMED_AS = 8;
const TOGETHER = 6; // plain rows per body of the table
const BETWEEN_STEPS = new Set(["arrived", "aborted"]);

export class DecisionsPanel extends Part {
  reads: Panel["reads"] = ["selected"];
  list = h("div", {
    click: (event) => this.look(event),
    focusin: (event) => this.look(event),
    pointerover: (event) => this.look(event),
  });
  seen = SEEN;
  /** The size of the list in board pixels, from the browser's last layout. */
  room = { width: 300, height: 0 };
  watched: Element | null = null;
  isScrolled = false;
  observer = new ResizeObserver(([{ contentRect }]) => this.resized(contentRect));
  ruler = new CanvasPainter(h("canvas"));
  source = h("p.note.source");
  element = h("section.decisions", { "aria-label": "Decisions" }, this.list, this.source);
  lines!: Line[];
  context!: BoardContext;

  constructor(board: Board) {
    super(board);
    board.signal.addEventListener("abort", () => this.observer.disconnect());
  }

  look(event: Event) {
    const row = closest(event, "tr[data-kind]");
    if (row) this.writeSource(Number(row.dataset.index));
  }

  write() {
    const { board } = this;
    this.lines = linesOf(board.frame);
    this.context = board.context();
    const moment = this.lines.findIndex(({ hot }) => hot);
    // A highlighted row below the first ones is scrolled to the middle, as far as the list can scroll.
    this.writeSeen(moment);
    this.writeSource(moment);
    const list = scrolledIn(this.element);
    if (list && list !== this.watched) this.watch(list);
    // After all text is written: reading the layout now would compute it twice.
    if (this.isScrolled || (moment >= 0 && this.isBelow(moment)))
      queueMicrotask(() => this.showMoment());
    else if (list) clip(list, ""); // until the user stops moving
  }

  watch(list: HTMLElement) {
    this.watched = list;
    this.observer.disconnect();
    this.observer.observe(list);
    list.onscroll = () => {
      this.isScrolled = list.scrollTop > 0;
      hideCutLines(list, this.board.unit);
    };
  }

  /** Writes the visible rows. */
  writeSeen(moment: number) {
    const { seen, lines } = this;
    const top = moment < seen ? 0 : Math.min(moment - seen / 2, lines.length - seen) - 1;
    this.writeRows(top, Math.max(seen, moment + seen / 2 + 1));
  }

  /** Writes the rows that `write` left out because they are not visible. */
  writeRest() {
    if (!this.lines) return;
    this.writeRows(0, this.lines.length);
    const list = scrolledIn(this.element);
    if (list) hideCutLines(list, this.board.unit);
  }

  /** Fits the rows that are written to a list of another size. */
  resized({ width, height }: DOMRectReadOnly) {
    const { unit } = this.board;
    this.room = { width: width / unit, height: height / unit };
    this.seen = Math.max(this.seen, Math.ceil(this.room.height / ROW) + 1);
    const moment = this.lines.findIndex(({ hot }) => hot);
    this.writeSeen(moment);
    if (moment >= 0 && this.isBelow(moment)) this.showMoment();
  }

  /** Whether a row may lie below the visible ones. Reading where it is would force a layout in every step. */
  isBelow(index: number) {
    const { width, height } = this.room;
    let bottom = 0;
    for (const { spans, requests = [] } of this.lines.slice(0, index + 1)) {
      const letters = spans.reduce((sum, { text }) => sum + text.length, 0);
      const names = NAMED_AS * Math.min(requests.length, MOST_NAMED);
      bottom +=
        LINE * Math.ceil(((letters + names) * LETTER) / Math.max(80, width - BESIDE)) + 2 * PADDING;
    }
    return bottom > height;
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
    this.isScrolled = top > 0;
    hideCutLines(list, board.unit);
  }

  writeRows(from: number, to: number) {
    patchChildren(
      this.list,
      decisionNodes(this.lines, this.context, { from, to, ruler: this.ruler }),
    );
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

/** The nodes of the list; of the plain rows only those from line `from` to line `to`. */
function decisionNodes(
  lines: Line[],
  context: BoardContext,
  { from, to, ruler }: { from: number; to: number; ruler: CanvasPainter },
) {
  const { model, frame } = context;
  const { held, all } = frame.seats;
  const isUnknown = (...facts: Fact[]) => lacks(model, ...facts) && knowledgeWords.unknown;
  const seats = isUnknown("settings", "admissions") || `${held} of ${plural(all, "seat")} taken`;
  const counts = `${seats}, ${isUnknown("queue") || frame.waitingCount} waiting`;
  const bodies = bodiesOf(lines).map(({ first, last, plain }) => {
    const isSeen = !plain || (first <= to && last >= from);
    const rows = isSeen
      ? lines.slice(first, last + 1).map((line, i) => row(line, first + i, context))
      : [];
    const style = plain ? `--rows: ${last - first + 1}` : null;
    return v("tbody", { class: plain ? "plain" : null, style }, ...rows);
  });
  const widths = lines.map(({ request, requests }) =>
    request == null || requests ? 0 : ruler.measure(model.tag(request).text, NAME),
  );
  const style = `--name: ${Math.max(0, ...widths)}`;
  const none = !lines.length && v("caption.muted", "No decision in this step.");
  const table = v("table", { style }, ...bodies, none);
  return [
    v("h2", "Decisions, in order", v("span.count.small.muted", counts)),
    v("div.scroll", { tabindex: "0", role: "group", "aria-label": "Decisions" }, table),
  ];
}

/** Groups of neighbouring lines for the bodies of the table: plain ones, a few together, and others. */
function bodiesOf(lines: Line[]) {
  const bodies: Body[] = [];
  for (const [i, line] of lines.entries()) {
    const plain = Boolean(line.plain);
    const body = bodies.at(-1);
    const isFull = plain && body && i - body.first >= TOGETHER;
    if (body?.plain === plain && !isFull) body.last = i;
    else bodies.push({ first: i, last: i, plain });
  }
  return bodies;
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
  const words = wordNodes(decision.spans, context);
  if (decision.requests || decision.request == null) {
    const who = namesOf(decision.requests ?? [], context);
    return v("tr", attributes, v("td.wide", { colspan: 3 }, ...who, " ", ...words));
  }
  const who = v("td.who", chip(decision.request, context));
  if (decision.tokens == null)
    return v("tr", attributes, who, v("td.what", { colspan: 2 }, ...words));
  words.push(...draftNodes(context.frame, decision.request));
  const budget = `${plural(decision.tokens, "token")}, ${decision.left} left`;
  return v("tr", attributes, who, v("td.what", ...words), v("td.budget.muted", budget));
}

const MOST_DRAFTS = 8;
const SIGNS = { kept: "✓", refused: "✗" } as Record<string, string>;

/** ": ✓ apple ✗ and – a": what became of each draft of a request, beside the decision to check it. */
function draftNodes(frame: Frame, request: number) {
  const checked = draftsOf(frame, request);
  if (!checked) return [];
  const shown = checked.drafts.slice(0, MOST_DRAFTS).map(({ text, token, fate }) => {
    const written = text == null ? `token ${token}` : visible(text.trim() || text);
    return v("span", { class: `guess ${fate}` }, ` ${SIGNS[fate] ?? "–"} ${written}`);
  });
  return [":", ...shown, checked.drafts.length > MOST_DRAFTS ? " …" : ""];
}

/** Chips of the first requests and the selected one; the others are counted. */
function namesOf(requests: number[], context: BoardContext) {
  const { selected } = context;
  const first = requests.slice(0, MOST_NAMED);
  if (selected !== null && requests.includes(selected) && !first.includes(selected))
    first.push(selected);
  const rest = requests.length - first.length;
  const chips = first.map((id) => chip(id, context));
  return rest ? [...chips, ` and ${rest.toLocaleString("en")} more`] : chips;
}
