/** The selected request's block table: logical to physical blocks, and what happened to the blocks it lost. */

import type { BoardContext } from "../board/board.ts";
import { type Description, v } from "../board/patch_children.ts";
import type { Claim } from "../drawing/blocks.ts";
import { plural } from "../drawing/html.ts";
import { withTerms } from "../drawing/terms.ts";
import { chip } from "../drawing/words_html.ts";
import type { Frame } from "../model/frame.ts";
import type { Model } from "../model/model.ts";
import { baseline, type Painted, paintWords } from "./painted.ts";

/** width: px that are available */
type TableContext = Omit<BoardContext, "block"> & { claim: Claim; width: number };

type Column = [logical: number, physical: number, fate?: string];

// Widths in px: of a row's heading, as in board.css, and of a column, which is as wide as its longest word.
const HEAD = 50;
const LETTER = 5.8;
const PADDING = 6;
const NARROWEST = 38;
const WIDEST = 80; // a longer name ends in an ellipsis

const NONE = "Click a request to see its block table.";
const TITLE = { size: 11, line: 17, top: 6, after: 8 }; // px, as in board.css

/** What the table of the selected request shows; null if it has no blocks. */
function shownIn({ model, frame, selected, claim: { table }, width }: TableContext) {
  if (!table?.blocks.length || selected == null) return null;
  const title = table.lost ? "block table until this step" : "block table";
  const columns = columnsOf(table, model);
  const cell = cellWidth(columns);
  const fits = Math.max(1, Math.floor((width - HEAD) / cell));
  const isPart = fits < columns.length;
  const part = isPart ? `; ${fits} of them here` : "";
  const first = isPart ? firstShown(columns.map(changedHands(table, frame, selected)), fits) : null;
  const words = `${title}, ${plural(table.blocks.length, "block")}${part}`;
  return { words, columns, cell, fits, first };
}

/** Paints what `blockTableNodes` describes. */
export function paintBlockTable(picture: Painted, context: TableContext & { unit: number }) {
  const { frame, selected, claim, width } = context;
  const { size, line, top, after } = TITLE;
  const shown = shownIn(context);
  const painter = picture.begin(width, TITLE.top + 84, context, shown?.words ?? NONE);
  const { ink, muted } = painter.theme;
  const name =
    selected == null
      ? []
      : [{ text: `${context.model.request(selected)?.name}`, request: selected }];
  if (!shown) {
    const words = selected == null ? NONE : ` ${holdsNothing(frame, selected, claim)}`;
    const form = { y: top, width, size, line: 15, color: muted };
    paintWords(painter, [...name, { text: words }], form, context);
    return;
  }
  const { words, columns, cell, fits, first } = shown;
  const [head] = paintWords(painter, name, { y: top, width, size, line }, context);
  painter.text(words, head.width + after, top + baseline(size, line), { color: muted });
  const rows = ["logical", "physical", ""].slice(0, columns[0].length);
  const seen = columns.slice(first ?? 0, (first ?? 0) + fits);
  rows.forEach((row, at) => {
    const base = top + (at + 1) * line + baseline(size, line);
    painter.text(row, 0, base, { color: muted });
    const form = at === 1 ? { bold: true, color: ink } : { size: at ? 10.5 : size, color: muted };
    seen.forEach((column, i) => {
      const text = painter.cut(`${column[at]}`, cell - PADDING, form);
      painter.text(text, HEAD + (i + 0.5) * cell, base, { ...form, align: "center" });
    });
  });
}

/** The nodes below the block map. */
export function blockTableNodes(context: TableContext) {
  const { frame, selected, claim } = context;
  if (selected == null) return [v("p.note.muted", NONE)];
  const who = chip(selected, context);
  const shown = shownIn(context);
  if (!shown)
    return [
      v(
        "p.note",
        { "data-found": claim.wanted.size || null },
        who,
        v("span.muted", ` ${holdsNothing(frame, selected, claim)}`),
      ),
    ];
  const { words, columns, cell, fits, first } = shown;
  return [
    v(
      "div.block-table.small",
      { style: `--cell: ${cell}; --columns: ${fits}` },
      who,
      v("span.muted", ...withTerms(words, new Set(["KV block"]))),
      v(
        "div.scroll",
        {
          tabindex: "0",
          role: "group",
          "aria-label": "Block table",
          "data-left": first === null ? null : first * cell,
        },
        v("table", ...rowNodes(columns)),
      ),
    ),
  ];
}

/**
 * Scrolls a table that is wider than its place to the blocks that changed hands. Without any it stays where the reader
 * left it; another request's table starts at its first block.
 *
 * @param parent the parent of `blockTableNodes`
 * @param isOther another request's
 */
export function scrollToChanged(parent: Element, unit: number, isOther: boolean) {
  const scroll = parent.querySelector(".scroll") as HTMLElement | null;
  const left = scroll?.dataset.left;
  if (scroll && (left || isOther)) scroll.scrollLeft = Number(left ?? 0) * unit;
}

function cellWidth(columns: Column[]) {
  const letters = Math.max(...columns.flat().map((words) => `${words}`.length));
  return Math.min(Math.max(NARROWEST, Math.ceil(PADDING + letters * LETTER)), WIDEST);
}

/** Tells of each column whether its block changed hands: another request took it, or this one did. */
const changedHands =
  ({ lost, fates }: NonNullable<Claim["table"]>, frame: Frame, selected: number) =>
  ([logical, block]: Column) =>
    lost ? fates[logical].fate === "taken" : frame.blocks[block].to === selected;

/** The first of the `fits` columns to show: those with the most blocks that changed hands; null if none did. */
function firstShown(changed: boolean[], fits: number) {
  let [best, most] = [null as number | null, 0];
  for (let first = 0; first + fits <= changed.length; first++) {
    const count = changed.slice(first, first + fits).filter(Boolean).length;
    if (count > most) [best, most] = [first, count];
  }
  return best;
}

const columnsOf = ({ blocks, lost, fates }: NonNullable<Claim["table"]>, model: Model): Column[] =>
  blocks.map((block, i) => {
    if (!lost) return [i, block];
    const { fate, to } = fates[i];
    return [i, block, fate === "taken" ? `→ ${model.request(to)?.name}` : fate];
  });

function rowNodes(columns: Column[]) {
  const row = (name: string, head: Description | string, at: number) =>
    v(
      "tr",
      { class: name },
      v("th", { scope: "row" }, head),
      ...columns.map((column) => v("td", String(column[at]))),
    );
  const rows = [row("logical", "logical", 0), row("physical", "physical", 1)];
  if (columns[0].length > 2) rows.push(row("fate", v("span.for-screen-readers", "now"), 2));
  return rows;
}

function holdsNothing(frame: Frame, selected: number, { wanted }: Claim) {
  const { kind } = frame.phase(selected);
  if (kind === "future") return "has not arrived yet.";
  if (kind === "finished") return "has finished and holds no blocks.";
  return wanted.size
    ? `waits and holds no blocks; ${plural(wanted.size, "block")} of its prompt would be cache hits.`
    : "waits and holds no blocks.";
}
