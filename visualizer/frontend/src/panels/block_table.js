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

// Widths in px: of a row's heading, as in board.css, and of a column, which is as wide as its longest word.
const HEAD = 50;
const LETTER = 5.8;
const PADDING = 6;
const NARROWEST = 38;
const WIDEST = 80; // a longer name ends in an ellipsis

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
  const columns = columnsOf(table, model);
  const cell = cellWidth(columns);
  const fits = Math.max(1, Math.floor((width - HEAD) / cell));
  const isPart = fits < columns.length;
  const part = isPart ? `; ${fits} of them here` : "";
  const first = isPart ? firstShown(columns.map(changedHands(table, frame, selected)), fits) : null;
  return [
    h(
      "div",
      { class: "block-table", style: `--cell: ${cell}; --columns: ${fits}` },
      who,
      h("span", { class: "muted" }, `${title}, ${plural(table.blocks.length, "block")}${part}`),
      h(
        "div",
        {
          class: "scroll",
          tabindex: "0",
          role: "group",
          "aria-label": "Block table",
          "data-left": first === null ? null : first * cell,
        },
        h("table", {}, ...rowNodes(columns)),
      ),
    ),
  ];
}

/**
 * Scrolls a table that is wider than its place to the blocks that changed hands. Without any it stays where the reader
 * left it; another request's table starts at its first block.
 *
 * @param {Element} parent  the parent of `blockTableNodes` @param {number} unit @param {boolean} isOther  another request's
 */
export function scrollToChanged(parent, unit, isOther) {
  const scroll = /** @type {HTMLElement | null} */ (parent.querySelector(".scroll"));
  const left = scroll?.dataset.left;
  if (scroll && (left || isOther)) scroll.scrollLeft = Number(left ?? 0) * unit;
}

/** @param {Column[]} columns */
function cellWidth(columns) {
  const letters = Math.max(...columns.flat().map((words) => `${words}`.length));
  return Math.min(Math.max(NARROWEST, Math.ceil(PADDING + letters * LETTER)), WIDEST);
}

/**
 * Tells of each column whether its block changed hands: another request took it, or this one did.
 *
 * @param {NonNullable<Claim["table"]>} table @param {Frame} frame @param {number} selected
 */
const changedHands =
  ({ lost, fates }, frame, selected) =>
  (/** @type {Column} */ [logical, block]) =>
    lost ? fates[logical].fate === "taken" : frame.blocks[block].to === selected;

/**
 * The first of the `fits` columns to show: those with the most blocks that changed hands; null if none did.
 *
 * @param {boolean[]} changed @param {number} fits
 */
export function firstShown(changed, fits) {
  let [best, most] = [/** @type {number | null} */ (null), 0];
  for (let first = 0; first + fits <= changed.length; first++) {
    const count = changed.slice(first, first + fits).filter(Boolean).length;
    if (count > most) [best, most] = [first, count];
  }
  return best;
}

/** @param {NonNullable<Claim["table"]>} table @param {Model} model @returns {Column[]} */
const columnsOf = ({ blocks, lost, fates }, model) =>
  blocks.map((block, i) => {
    if (!lost) return [i, block];
    const { fate, to } = fates[i];
    return [i, block, fate === "taken" ? `→ ${model.request(to)?.name}` : fate];
  });

/** @param {Column[]} columns */
function rowNodes(columns) {
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
  return rows;
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
