/**
 * The selected request's block table: logical to physical blocks, and what happened to the blocks it lost.
 *
 * @typedef {Omit<BoardContext, "block"> & {claim: Claim, width: number}} TableContext  width: px that are available
 * @typedef {[logical: number, physical: number, fate?: string]} Column
 */

/** @import { BoardContext } from "../board/board.js" */
/** @import { Claim } from "../drawing/blocks.js" */
/** @import { Frame } from "../model/frame.js" */
/** @import { Model } from "../model/model.js" */
import { h, plural } from "../drawing/html.js";
import { chip } from "../drawing/words_html.js";

// Widths in px: of a row's heading, of a column, and of a column that also states what happened to its block.
const HEAD = 62;
const CELL = 38;
const FATED = 44;

/** The nodes below the block map. @param {TableContext} context */
export function blockTableNodes(context) {
  const { model, frame, selected, claim, width } = context;
  if (selected == null)
    return [h("p", { class: "note muted" }, "Click a request to see its block table.")];
  const { table } = claim;
  const who = chip(selected, context);
  if (!table?.blocks.length)
    return [
      h(
        "p",
        { class: "note", "data-found": claim.wanted.size || null },
        who,
        h("span", { class: "muted" }, ` ${holdsNothing(frame, selected, claim)}`),
      ),
    ];
  const title = table.lost ? "block table until this step" : "block table";
  const fits = Math.floor((width - HEAD) / (table.lost ? FATED : CELL));
  const lines = cut(columnsOf(table, model), Math.max(fits, 4));
  return [
    h(
      "div",
      { class: "block-table" },
      who,
      h("span", { class: "muted" }, `${title}, ${plural(table.blocks.length, "block")}`),
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "group", "aria-label": "Block table" },
        h("table", {}, ...lines.map(lineNodes)),
      ),
    ),
  ];
}

/** @param {NonNullable<Claim["table"]>} table @param {Model} model @returns {Column[]} */
const columnsOf = ({ blocks, lost, fates }, model) =>
  blocks.map((block, i) => {
    if (!lost) return [i, block];
    const { fate, to } = fates[i];
    return [i, block, fate === "taken" ? `→ ${model.request(to)?.name}` : fate];
  });

/** @param {Column[]} columns @param {number} most */
function cut(columns, most) {
  const count = Math.ceil(columns.length / most);
  return Array.from({ length: count }, (_, i) => columns.slice(i * most, (i + 1) * most));
}

/** One row of the table; further columns follow in rows below. @param {Column[]} columns */
function lineNodes(columns) {
  /** @param {string} name @param {Node | string} head @param {number} at */
  const row = (name, head, at) =>
    h(
      "tr",
      { class: name },
      h("th", { scope: "row" }, head),
      ...columns.map((column) => h("td", {}, String(column[at]))),
    );
  const rows = [row("logical", "logical", 0), row("physical", "physical", 1)];
  if (columns[0].length > 2)
    rows.push(row("fate", h("span", { class: "for-screen-readers" }, "now"), 2));
  return h("tbody", {}, ...rows);
}

/** @param {Frame} frame @param {number} selected @param {Claim} claim */
function holdsNothing(frame, selected, { wanted }) {
  const { kind } = frame.phase(selected);
  if (kind === "future") return "has not arrived yet.";
  if (kind === "finished") return "has finished and holds no blocks.";
  return wanted.size
    ? `waits and holds no blocks; ${plural(wanted.size, "block")} of its prompt would be cache hits.`
    : "waits and holds no blocks.";
}
