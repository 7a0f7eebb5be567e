/**
 * The content of the canvases as tables, for screen readers, and visible with "T".
 *
 * Hidden tables are written when the user stops moving and are empty until then, so that a table never shows
 * another step than the pictures. Each has at most MOST rows.
 */

import type { Panel } from "../board/board.ts";
import type { ViewStore } from "../board/store.ts";
import { h, visible } from "../drawing/html.ts";
import { outOf } from "../drawing/strip.ts";
import { adapterOf, hasAdapters } from "../model/adapters.ts";
import { duration } from "../model/duration.ts";
import type { Block, Frame } from "../model/frame.ts";
import { type Fact, halfDot, knowledgeWords, lacks } from "../model/knowledge.ts";
import type { Model } from "../model/model.ts";

type Source = { model: Model; frame: Frame; store: ViewStore };

const MOST = 40;

/** The element that a panel's tables are written into. */
export const tablesBox = () =>
  h("div.alternative.small", { role: "group", "aria-label": "Tables" });

/** Writes the tables of panels that have some. */
export function writeTables(panels: Panel[]) {
  for (const panel of panels) panel.alternative?.replaceChildren(...(panel.tables?.() ?? []));
}

export function emptyTables(panels: Panel[]) {
  for (const { alternative } of panels) if (alternative?.firstChild) alternative.replaceChildren();
}

export function table(
  caption: string,
  heads: string[],
  rows: (string | Node)[][],
  total: number = rows.length,
) {
  const body = rows.map(([first, ...others]) =>
    h("tr", h("th", { scope: "row" }, first), ...others.map((text) => h("td", text))),
  );
  if (total > rows.length) {
    body.push(h("tr", h("td", { colspan: heads.length }, `and ${total - rows.length} more`)));
  }
  return h(
    "table",
    h("caption", caption),
    h("thead", h("tr", ...heads.map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", ...body),
  );
}

export function stepTable({ model, frame }: Source) {
  const i = frame.step - model.firstStep;
  const { prefill, decode, catchup, used, cached, free } = model.measures;
  const { time } = frame;
  const known = (value: string | number, fact: Fact) =>
    lacks(model, fact) ? knowledgeWords.unknown : value;
  const rows: [string, string | number][] = [
    ["blocks used", known(used.at(i), "block_tables")],
    ["blocks cached", known(cached.at(i), "prefix_tree")],
    ["blocks free", known(free.at(i), "free_blocks")],
    ["tokens", known(outOf(frame.budget.tokens, frame.budget.budget), "scheduled_tokens")],
    ["prefill tokens", known(prefill.at(i), "scheduled_tokens")],
    ["decode tokens", known(decode.at(i), "scheduled_tokens")],
    ["recomputed tokens", known(catchup.at(i), "scheduled_tokens")],
    ["seats taken", known(outOf(frame.seats.held, frame.seats.all), "admissions")],
    ["running", known(frame.running.length, "admissions")],
    ["waiting", known(frame.waitingCount, "queue")],
  ];
  if (model.settings.async_scheduling)
    rows.push([
      "computed meanwhile",
      model.measures
        .computed(frame.step)
        .map((step) => `step ${step}`)
        .join(", ") || "no step",
    ]);
  const mark = halfDot(model, "step_times");
  if (time && !lacks(model, "step_times"))
    rows.push(["took", `${mark}${duration(time.end - time.start)}`]);
  const texts = rows.map(([name, value]) => [name, String(value)]);
  return table(`Step ${frame.step} of ${model.lastStep}`, ["measure", "value"], texts);
}

export function requestTable({ model, frame, store }: Source) {
  const here = [...new Set([store.selected, ...frame.running, ...frame.waiting])].flatMap(
    (id) => model.request(id) ?? [],
  );
  const mark = halfDot(model, "waiting_reasons");
  const isAdapted = hasAdapters(model);
  const rows = here.slice(0, MOST).map((span) => {
    const { id, name, label, promptLength } = span;
    const { reason, head } = frame.waitOf(id);
    const why =
      head === id ? frame.reasonFor(`${reason}`, [id]) : `behind ${model.request(head)?.name}`;
    const { words } = frame.phase(id);
    const whole = label && label !== name ? `${name}, ${label}` : name;
    const whose = isAdapted ? [adapterOf(span) || "none"] : [];
    return [whole, reason ? `${words} (${mark}${why})` : words, String(promptLength), ...whose];
  });
  const caption = `Requests at step ${frame.step}`;
  const heads = ["request", "state", "prompt tokens", ...(isAdapted ? ["adapter"] : [])];
  return table(caption, heads, rows, here.length);
}

export function blockTable({ model, frame, store }: Source) {
  const name = (id: number) => model.requestSpan(id).name;
  const rank = ({ owners }: Block) => (owners.some((id) => id === store.selected) ? 0 : 1);
  const busy = frame.blocks.filter(({ kind }) => kind !== "free");
  const first = [0, 1].flatMap((wanted) => busy.filter((block) => rank(block) === wanted));
  const rows = first
    .slice(0, MOST)
    .map(({ id, kind, owners, filled, slots }) => [
      String(id),
      kind,
      owners.map(name).join(", "),
      `${filled} of ${slots}`,
      visible(frame.blockTexts(id).join("")),
    ]);
  const caption = `KV blocks in use at step ${frame.step}; ${frame.counts.free} free`;
  return table(caption, ["block", "state", "requests", "slots", "text"], rows, busy.length);
}

export function treeTable({ model, frame }: Omit<Source, "store">) {
  const { tree } = frame;
  const caption = `Prefix tree at step ${frame.step}`;
  if (tree[0]?.marks.length) {
    const rows = tree
      .slice(0, MOST)
      .map((node) => [
        node.title,
        tree.find(({ id }) => id === node.parent)?.title ?? "root",
        String(node.blocks.length),
        node.places || `not in the cache: ${node.absence}`,
      ]);
    return table(caption, ["node", "below", "blocks", "where"], rows, tree.length);
  }
  const rows = tree
    .slice(0, MOST)
    .map((node) => [
      String(node.id),
      node.parent ? String(node.parent) : "root",
      String(node.blocks.length),
      String(node.lock),
      node.usersIn(model).join(", ") || "cached",
      visible(node.text.slice(0, 80)),
    ]);
  const heads = ["node", "below", "blocks", "lock", "requests", "text"];
  return table(caption, heads, rows, tree.length);
}
