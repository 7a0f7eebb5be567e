/**
 * The scheduler panel: the decisions of a step in order, with tokens, budget left and reasons, and which
 * function of the engine made the one that is looked at.
 */

import { h, plural } from "./html.js";
import { renew } from "./renew.js";
import { labAddress, sourceOf } from "./sources.js";
import { chip, wordNodes } from "./words_html.js";

/** So many requests are named in one line; with two thousand waiting a page would hold nothing else. */
const MOST_NAMED = 24;
const BETWEEN_STEPS = new Set(["arrived", "aborted"]);

export class DecisionsPanel {
  constructor(board) {
    this.board = board;
    this.list = h("div", {});
    this.source = h("p", { class: "note source" });
    this.element = h(
      "section",
      { class: "decisions", "aria-label": "Decisions" },
      this.list,
      this.source,
    );
    const { signal } = board;
    const look = (event) => {
      const row = event.target.closest?.("tr[data-kind]");
      if (row) this.writeSource(Number(row.dataset.index));
    };
    for (const name of ["click", "focusin", "pointerover"])
      this.list.addEventListener(name, look, { signal });
  }

  setModel() {}

  layout() {}

  draw() {}

  write() {
    const { board } = this;
    this.lines = linesOf(board.frame);
    renew(this.list, decisionNodes(this.lines, board.context()));
    // In the next frame, when the page has been laid out: asked for now, it would be laid out twice.
    requestAnimationFrame(() => showMoment(this.element));
    this.writeSource(this.lines.findIndex(({ hot }) => hot));
  }

  /** The function that made a decision: a link where JupyterLab can open it, else its path to copy. */
  writeSource(index) {
    const { frame, project } = this.board;
    const line = this.lines[index];
    const source = line && sourceOf(frame, line);
    if (!source) return renew(this.source, ["\u00a0"]);
    const { file, name } = source;
    const href = labAddress(file, project);
    // It may break after a slash, and nowhere else.
    const parts = `${file}::${name}`.split(/(?<=\/)/);
    const path = parts.flatMap((part) => [part, h("wbr")]);
    const where = href
      ? h("a", { href, target: "_blank", rel: "noopener" }, ...path)
      : h("code", { tabindex: "0" }, ...path);
    renew(this.source, [h("span", { class: "muted" }, `${line.kind}: `), where]);
    return undefined;
  }
}

/** What came between the steps lies before the decisions, what the commit brought behind them. */
function linesOf(frame) {
  const before = frame.outcomes.filter(({ kind }) => BETWEEN_STEPS.has(kind));
  const after = frame.outcomes.filter(({ kind }) => !BETWEEN_STEPS.has(kind));
  return [...grouped(before), ...frame.decisions, ...after];
}

/** Scrolls a long list to the event of the moment; never the page around the board. */
function showMoment(panel) {
  const list = panel.querySelector(".scroll");
  const moment = panel.querySelector(".moment");
  if (!list) return;
  const isBelow = moment && moment.offsetTop + moment.offsetHeight > list.clientHeight;
  const top = isBelow ? moment.offsetTop - list.clientHeight / 2 : 0;
  if (list.scrollTop !== top) list.scrollTop = top;
}

function decisionNodes(lines, context) {
  const { model, frame } = context;
  const { max_batch_size: places } = model.settings;
  const counts = `running ${frame.running.length} of ${places}, waiting ${frame.waiting.length}`;
  const rows = lines.map((line, index) => row(line, index, context));
  const table = h("table", {}, h("tbody", {}, ...rows));
  if (!rows.length) table.append(h("caption", { class: "muted" }, "No decision in this step."));
  return [
    h("h2", {}, "Decisions, in order", h("span", { class: "count" }, counts)),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Decisions" }, table),
  ];
}

/** Three arrivals and more are one line: who they are, not how long each prompt is. */
function grouped(outcomes) {
  const arrivals = outcomes.filter(({ kind }) => kind === "arrived");
  if (arrivals.length < 3) return outcomes;
  const requests = arrivals.map(({ request }) => request);
  const together = { kind: "arrived", requests, spans: [{ text: "arrive" }] };
  return [together, ...outcomes.filter(({ kind }) => kind !== "arrived")];
}

function row(decision, index, context) {
  const attributes = {
    "data-index": index,
    class: decision.hot ? "moment" : null,
    "data-kind": decision.kind,
    "data-request": decision.request ?? null,
  };
  const words = wordNodes(decision.spans, context);
  if (decision.requests || decision.request == null) {
    const who = named(decision.requests ?? [], context);
    return h("tr", attributes, h("td", { class: "wide", colspan: 3 }, ...who, " ", ...words));
  }
  const who = h("td", { class: "who" }, chip(decision.request, context));
  if (decision.tokens == null)
    return h("tr", attributes, who, h("td", { class: "what", colspan: 2 }, ...words));
  const budget = `${plural(decision.tokens, "token")}, ${decision.left} left`;
  return h(
    "tr",
    attributes,
    who,
    h("td", { class: "what" }, ...words),
    h("td", { class: "budget" }, budget),
  );
}

/** The first of them and the selected one by name, the others by their number. */
function named(requests, context) {
  const { selected } = context;
  const first = requests.slice(0, MOST_NAMED);
  if (requests.includes(selected) && !first.includes(selected)) first.push(selected);
  const rest = requests.length - first.length;
  const chips = first.map((id) => chip(id, context));
  return rest ? [...chips, ` and ${rest.toLocaleString("en")} more`] : chips;
}
