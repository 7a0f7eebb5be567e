/** The tables of a comparison: totals, and one sortable row per request. */

import { closest, h, plural } from "../drawing/html.ts";
import { chip, type WordContext } from "../drawing/words_html.ts";
import type { Facts, Study } from "./compare.ts";

/** As in `comparison.py`: the index at which a measure's three numbers begin in a row. */
const MEASURES: [string, number][] = [
  ["TTFT, ms", 2],
  ["ITL, ms", 5],
  ["last token, ms", 8],
  ["finished in step", 11],
  ["preempted", 14],
  ["cached tokens", 17],
];
const MOST_ROWS = 200; // drawn; all rows are sorted

/** "12.3", "1,230": three significant digits, whole numbers whole. */
export function figure(value: number | null) {
  if (value == null) return "–";
  const rounded = Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(3));
  return rounded.toLocaleString("en");
}

/** "+12.3", "−4", "0". */
export function change(value: number | null) {
  if (value == null) return "–";
  const text = figure(Math.abs(value));
  return text === "0" ? "0" : `${value > 0 ? "+" : "−"}${text}`;
}

/** Why neither value of a time is called better. */
const DOUBTS: Record<string, { sign: string; words: string }> = {
  noise: { sign: "≈", words: "is within the noise" },
  unknown: { sign: "?", words: "may be noise: how much the times vary is unknown" },
};

/** The whole run: the better value is bold, and a change that may be noise says so. */
export function totalsTable({ totals, names }: Facts) {
  const cell = (value: number | null, isBetter: boolean) =>
    h("td", isBetter ? h("strong", figure(value)) : figure(value));
  const rows = totals.map(([name, a, b, difference, better]) => {
    const doubt = better && DOUBTS[better] && h("span.muted", `${DOUBTS[better].sign} `);
    const shown = h("span.change", doubt || null, change(difference));
    return h(
      "tr",
      { "data-better": better },
      h("th", { scope: "row" }, name),
      cell(a, better === "a"),
      cell(b, better === "b"),
      h("td", shown),
    );
  });
  const heads = [...names, "change"].map((name) => h("th", { scope: "col" }, name));
  const doubts = Object.entries(DOUBTS).flatMap(([name, { sign, words }]) =>
    totals.some((row) => row[4] === name) ? `, ${sign} ${words}` : [],
  );
  return h(
    "table.totals",
    { "aria-label": "Both runs as wholes" },
    h("caption.small.muted", h("strong", "The whole run"), ` bold is better${doubts.join("")}`),
    h("thead", h("tr", h("td"), ...heads)),
    h("tbody", ...rows),
  );
}

/** The recorded run, its replays, and how far each number can be trusted. */
export function studyTable({ table: [heads, ...lines], statements, title }: Study) {
  const rows = lines.map(([name, ...cells]) =>
    h("tr", h("th", { scope: "row" }, name), ...cells.map((text) => h("td", text))),
  );
  const columns = heads.map((name) => {
    const parts = name.split(/(?<=[=_])/).flatMap((part, at) => (at ? [h("wbr"), part] : part));
    return h(name ? "th" : "td", name ? { scope: "col" } : {}, ...parts);
  });
  const table = h(
    "table.totals",
    { "aria-label": "The recorded run and its replays" },
    h(
      "caption.small.muted",
      h("strong", title ?? "What if"),
      title ? "" : " recorded, replayed, changed",
    ),
    h("thead", h("tr", ...columns)),
    h("tbody", ...rows),
  );
  const words = statements.map((text) => h("p.note.muted", text));
  return h("div.study", h("div.scroll", { tabindex: "0" }, table), ...words);
}

/** The table of requests; `show` writes it for a theme and a selection. */
export function requestTable({ rows, names, paired }: Facts) {
  const order = { at: 4, down: true }; // by the change in TTFT
  const body = h("tbody");
  const note = h("caption.small.muted");
  const known = MEASURES.filter(([, at]) =>
    rows.some((row) => row[at] != null || row[at + 1] != null),
  );
  const head = (words: string, at: number, title?: string) => {
    const button = h("button", { "data-sort": at, title }, words);
    return h("th", { scope: "col", "aria-sort": "none" }, button);
  };
  const heads = h(
    "tr",
    head("Request", 0),
    ...known.map(([name, at]) => head(name, at + 2, "Sort by the change")),
  );
  const element = h(
    "div.requests",
    { tabindex: "0", role: "group", "aria-label": "Requests" },
    h("table", note, h("thead", heads), body),
  );
  let context: WordContext | null = null;
  const value = (row: (number | null)[]) => {
    const one = row[order.at];
    return one == null ? -Infinity : order.at === 0 ? -one : Math.abs(one);
  };
  const write = (shownIn: WordContext) => {
    const sign = order.down ? -1 : 1;
    const sorted = rows.toSorted(
      (a, b) => sign * (value(a) - value(b)) || Number(a[0]) - Number(b[0]),
    );
    const shown = sorted.slice(0, MOST_ROWS);
    const more = paired > shown.length ? `the first ${shown.length} of ` : "";
    note.textContent = `${more}${plural(paired, "request")} that both runs have: ${names[0]} → ${names[1]}, and the change`;
    body.replaceChildren(...shown.map((row) => line(row, known, shownIn)));
    const buttons: NodeListOf<HTMLElement> = heads.querySelectorAll("[data-sort]");
    for (const button of buttons) {
      const on = Number(button.dataset.sort) === order.at;
      const how = on ? (order.down ? "descending" : "ascending") : "none";
      button.parentElement?.setAttribute("aria-sort", how);
    }
  };
  element.addEventListener("click", (event) => {
    const button = closest(event, "[data-sort]");
    if (!button) return;
    const at = Number(button.dataset.sort);
    order.down = at === order.at ? !order.down : true;
    order.at = at;
    if (context) write(context);
  });
  return {
    element,
    show(now: WordContext) {
      // It does not depend on the step, so most changes leave it as it is.
      const isSame = now.theme === context?.theme && now.selected === context.selected;
      context = now;
      if (!isSame) write(now);
    },
  };
}

function line(row: (number | null)[], known: [string, number][], context: WordContext) {
  const cells = known.map(([, at]) =>
    h(
      "td",
      h("span.both.muted", `${figure(row[at])} → ${figure(row[at + 1])} `),
      h("span.change", change(row[at + 2])),
    ),
  );
  const isSelected = row[0] === context.selected;
  return h(
    "tr",
    { class: isSelected ? "chosen" : null },
    h("th", { scope: "row" }, chip(Number(row[0]), context)),
    ...cells,
  );
}
