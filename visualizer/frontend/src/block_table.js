/** The selected request's block table: logical to physical, and what became of each block it lost. */

import { h, plural } from "./html.js";
import { chip } from "./words_html.js";

/** Nodes below the block map. `context` has model, frame, theme, selected, claim. */
export function blockTableNodes(context) {
  const { model, frame, selected, claim } = context;
  if (selected == null)
    return [h("p", { class: "note muted" }, "Click a request to see its block table.")];
  const { table } = claim;
  const who = chip(selected, context);
  if (!table?.blocks.length)
    return [
      h(
        "p",
        { class: "note" },
        who,
        h("span", { class: "muted" }, ` ${holdsNothing(frame, selected, claim)}`),
      ),
    ];
  const title = table.lost ? "block table until this step" : "block table";
  const cells = (tag, values) => values.map((value) => h(tag, {}, String(value)));
  const rows = [
    h(
      "tr",
      {},
      h("th", { scope: "row" }, "logical"),
      ...cells(
        "td",
        table.blocks.map((_, i) => i),
      ),
    ),
    h(
      "tr",
      { class: "physical" },
      h("th", { scope: "row" }, "physical"),
      ...cells("td", table.blocks),
    ),
  ];
  if (table.lost) {
    const labels = table.fates.map(({ fate, to }) =>
      fate === "taken" ? `→ ${model.request(to)?.name}` : fate,
    );
    rows.push(
      h(
        "tr",
        { class: "fate" },
        h("th", { scope: "row" }, h("span", { class: "for-screen-readers" }, "now")),
        ...cells("td", labels),
      ),
    );
  }
  return [
    h(
      "div",
      { class: "block-table" },
      who,
      h("span", { class: "muted" }, title),
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "group", "aria-label": "Block table" },
        h("table", {}, h("tbody", {}, ...rows)),
      ),
    ),
  ];
}

function holdsNothing(frame, selected, { wanted }) {
  const { kind } = frame.phase(selected);
  if (kind === "future") return "has not arrived yet.";
  if (kind === "finished") return "has finished and holds no blocks.";
  return wanted.size
    ? `waits and holds no blocks; ${plural(wanted.size, "block")} of its prompt would be found.`
    : "waits and holds no blocks.";
}
