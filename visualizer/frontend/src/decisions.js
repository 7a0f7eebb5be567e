/** The scheduler panel: the decisions of a step in order, with tokens, budget left and reasons. */

import { h, plural } from "./html.js";
import { chip, wordNodes } from "./words_html.js";

const BETWEEN_STEPS = new Set(["arrived", "aborted"]);

/** Nodes of the panel. `context` has model, frame, theme, selected. */
export function decisionNodes(context) {
  const { model, frame } = context;
  const { max_batch_size: places } = model.settings;
  const counts = `running ${frame.running.length} of ${places}, waiting ${frame.waiting.length}`;
  // What came between the steps lies before the decisions, what the commit brought behind them.
  const before = frame.outcomes.filter(({ kind }) => BETWEEN_STEPS.has(kind));
  const after = frame.outcomes.filter(({ kind }) => !BETWEEN_STEPS.has(kind));
  const rows = [...grouped(before), ...frame.decisions, ...after].map((decision) =>
    row(decision, context),
  );
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

function row(decision, context) {
  const attributes = {
    class: decision.hot ? "moment" : null,
    "data-kind": decision.kind,
    "data-request": decision.request ?? null,
  };
  const words = wordNodes(decision.spans, context);
  if (decision.requests || decision.request == null) {
    const who = (decision.requests ?? []).map((id) => chip(id, context));
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
