/**
 * The comparison of two runs: one picture of both, the decision at which they part, and what changed in numbers.
 * A click opens the board of either run. Python compares the runs, see `comparison.py`.
 */

import { Board } from "../board/board.ts";
import { bindKeys } from "../board/keys.ts";
import css from "../board/pages.css";
import { patchChildren } from "../board/patch_children.ts";
import { Shell, type ShellOptions } from "../board/shell.ts";
import { View, viewOf } from "../board/view.ts";
import { closest, h, plural } from "../drawing/html.ts";
import type { Axis } from "../drawing/time_axis.ts";
import { chip } from "../drawing/words_html.ts";
import { LogReader } from "../host/log_reader.ts";
import {
  bytesFor,
  type Load,
  missing,
  modelOf,
  partFrom,
  partOnly,
  type Widget,
} from "../host/notebook.ts";
import { keep } from "../host/outputs.ts";
import type { Model } from "../model/model.ts";
import { openTour } from "../tour/open_tour.ts";
import type { Scene } from "../tour/scenes.ts";
import { type PartnerOf, partners, stepFor } from "./alignment.ts";
import { BothWays } from "./both_ways.ts";
import { requestTable, studyTable, totalsTable } from "./compare_tables.ts";
import { GhostPanel } from "./ghost_panel.ts";
import { headline } from "./headline.ts";

/** the kernel's comparison of two runs, see `comparison.py` */
export interface Facts {
  names: [string, string];
  axis: Axis["kind"];
  verdict: string;
  note: string | null;
  settings: [name: string, a: unknown, b: unknown][]; // those that differ
  inputs: string[]; // differences of arrivals
  difference: Difference | null; // null: both runs decide alike
  tour?: Scene[];
  differing?: number[]; // the steps with decisions that differ
  renumbered: [number, number][]; // [id in A, id in B] of requests with two ids
  unmatched: [number[], number[]]; // ids that only A has, and that only B has
  end_noise: { share: number | null; ms: number }; // how much two ends differ without a cause
  totals: Total[];
  study?: Study | null; // the runs of a what-if, beside the recorded one
  rows: (number | null)[][]; // a request's numbers, see `compare_tables.ts`
  paired: number; // requests that both runs have
}

/** better: "a", "b", "noise", "unknown" (how much the times vary) or "" */
type Total = [
  name: string,
  a: number | null,
  b: number | null,
  difference: number | null,
  better: string | null,
];

/** a table whose first line has the heads */
export type Study = { table: string[][]; statements: string[]; title?: string };

/** where the runs part */
export interface Difference {
  step: number;
  a: (string | number)[]; // the decision in words; requests are numbers
  b: (string | number)[];
  requests: [number | null, number | null];
}

export type At = { step?: number; selected?: number | null };

/** anywidget's `render` of a comparison. */
export const comparisonInNotebook =
  (load: Load): ((widget: Widget) => Promise<void>) =>
  async ({ model: traits, el, signal = new AbortController().signal, host }) => {
    const references: string[] = [traits.get("a"), traits.get("b")];
    const shared = await Promise.all(references.map((name) => modelOf(traits, host, name)));
    const views = references.map((name) => viewOf(name));
    const logs = await Promise.all(
      views.map((view, side) => (view.bytes ??= bytesFor(view, shared[side]))),
    );
    const facts = traits.get("facts");
    const page = new ComparisonPage(el, {
      facts,
      views,
      load,
      signal,
      loadTour: () => partFrom(shared[0], "tour.js"),
    });
    const parts = () => [page, ...page.boards.flatMap((board) => board ?? [])];
    keep(traits, page, parts);
    const lost = shared.findIndex((_, side) => !logs[side].byteLength);
    if (lost >= 0) return page.tell(`${facts.names[lost]}: ${missing(shared[lost])}`);
    await page.fill(logs);
    const part = shared.find((one, side) => !one.get("whole") && !views[side].isWhole);
    if (part) page.root.append(partOnly(part));
  };

interface ComparisonOptions extends ShellOptions {
  facts: Facts;
  load: Load;
  views?: View[];
}

/** Draws a comparison of two logs in `host`. */
export async function drawComparison(
  host: HTMLElement,
  { logs, ...options }: ComparisonOptions & { logs: ArrayBufferView[] },
) {
  const page = new ComparisonPage(host, options);
  await page.fill(logs);
  return page;
}

export class ComparisonPage extends Shell {
  facts: Facts;
  views: View[];
  load: Load;
  partnerOf: PartnerOf;
  /** Built when they are opened. */
  boards: (Board | null)[] = [null, null];
  shows: "both" | "a" | "b" = "both";
  verdict = h("p.sentence.verdict");
  hosts = [0, 1].map((side) => h("div.run", { "data-side": side, hidden: true }));
  picture = h("div.grid-of-two");
  summary = h("summary.small.muted");
  tables = h("details.tables", this.summary);
  logs!: ArrayBufferView[];
  models!: Model[];
  ghost!: GhostPanel;
  ways!: BothWays | null;
  requests!: ReturnType<typeof requestTable>;

  constructor(host: HTMLElement, options: ComparisonOptions) {
    super(host, options, { name: ".compare", label: "Comparison of two runs", css });
    const { facts, load, views = [new View(), new View()] } = options;
    this.facts = facts;
    this.views = views;
    this.load = load;
    this.partnerOf = partners(facts);
    const isPicture = () => this.shows === "both"; // the board of a run has keys of its own
    bindKeys(this.root, { g: () => void this.tellMe() }, isPicture);
    this.root.append(
      this.verdict,
      h("div.under.flow", this.changes(), this.buttons()),
      this.picture,
      ...this.hosts,
    );
  }

  /** Shows a message in place of the runs. */
  tell(words: string, ready: string = "empty") {
    this.verdict.textContent = words;
    this.root.dataset.ready = ready;
  }

  /** The differences of the runs' settings and arrivals, as a line. */
  changes() {
    const { settings, inputs } = this.facts;
    const lines = settings.map(([name, a, b]) => h("span", h("strong", name), ` ${a} → ${b}`));
    lines.push(...inputs.map((line) => h("span", line.replace("->", "→"))));
    if (!lines.length) lines.push(h("span.muted", "equal settings and arrivals"));
    return h("p.changes-line.flow", ...lines);
  }

  /** The buttons: the picture or a run's board, and the axis of the picture. */
  buttons() {
    const button = (data: Record<string, string>, words: string, key?: string) =>
      h("button", { ...data }, words, key ? " " : null, key && h("kbd", key));
    const [a, b] = this.facts.names;
    return h(
      "div.switch.flow.small.muted",
      { role: "toolbar", "aria-label": "What is shown" },
      button({ "data-shows": "both" }, "both runs"),
      button({ "data-shows": "a" }, `board of ${a}`, "A"),
      button({ "data-shows": "b" }, `board of ${b}`, "B"),
      button({ "data-axis": "" }, "steps or time", "X"),
      button({ "data-tell": "" }, "tell me", "G"),
    );
  }

  /** The requests that only one of the runs has. */
  alone() {
    const { unmatched, names } = this.facts;
    return unmatched.flatMap((ids, side) => {
      if (!ids.length) return [];
      const few = ids.slice(0, ids.length > 5 ? 4 : 5);
      const context = { ...this.context(side), selected: null };
      const shown = few.flatMap((id, i) => [i ? " " : "", chip(id, context)]);
      const more = ids.length > few.length ? ` and ${ids.length - few.length} more` : "";
      return [h("span", { "data-side": side }, `only in ${names[side]}: `, ...shown, more)];
    });
  }

  /** Tells how the runs differ, scene by scene. */
  tellMe() {
    const { facts, models } = this;
    const host = {
      title: facts.names.join(" and "),
      runs: facts.names,
      theme: () => this.theme,
      modelOf: (_: Scene, run: number) => models[run] ?? null,
      leave: ({ step, run, requests }: Scene) => {
        if (step !== null) this.views[run].goTo(step);
        if (requests.length) this.views[run].store.set({ selected: requests[0] });
      },
    };
    return openTour(this, host, facts.tour);
  }

  /** Reads both logs and draws the picture. */
  async fill(logs: ArrayBufferView[]) {
    const { views, facts, signal, root } = this;
    this.logs = logs;
    this.verdict.textContent = "Reading both logs";
    const readers = views.map((view, side) => (view.reading ??= new LogReader(logs[side])));
    await Promise.all(readers.map((reader) => reader.follow(() => {})));
    if (signal.aborted) return;
    const wrong = readers.findIndex(({ error, model }) => error || !model.stepCount);
    if (wrong >= 0) {
      const { error } = readers[wrong];
      const why = error ? (error.reason ?? error.message) : "it has no steps";
      const where = error?.line ? `line ${error.line} of the log` : "the log";
      this.tell(`${facts.names[wrong]}: ${where} cannot be used: ${why}.`, "error");
      return;
    }
    this.models = readers.map(({ model }) => model);
    views.forEach((view, side) => {
      const { difference, axis } = facts;
      const selected = difference?.requests[side];
      if (!view.model) view.open(this.models[side], { step: difference?.step, selected, axis });
    });
    root.querySelector(".changes-line")?.append(...this.alone());
    this.ghost = new GhostPanel(this);
    this.ways = facts.difference ? new BothWays(this, facts.difference) : null;
    this.requests = requestTable(facts);
    const note = facts.note && !facts.study && h("p.model-error.note.muted", facts.note);
    const side = h(
      "div.beside",
      this.ways?.element,
      facts.study ? null : totalsTable(facts),
      note || null,
      legend(facts),
    );
    this.tables.append(this.requests.element);
    const study = facts.study ? studyTable(facts.study) : null;
    this.picture.append(
      ...[study, this.ghost.element, side, this.tables].filter((one) => one !== null),
    );
    for (const view of views) view.store.listen(() => this.render(), signal);
    this.layout();
    root.dataset.ready = "true";
  }

  context(side: number) {
    return {
      model: this.models[side],
      theme: this.theme,
      selected: this.views[side].store.selected,
    };
  }

  /** The run whose step and selection are current: that of the board on show, or A. */
  get leader() {
    return this.shows === "b" ? 1 : 0;
  }

  /** Shows the picture ("both") or the board of a run ("a", "b"), at `step` with `selected` if they are given. */
  async show(what: "both" | "a" | "b", { step, selected }: At = {}) {
    const { views, models, facts, leader } = this;
    const side = what === "b" ? 1 : 0;
    const [from, to] = [views[leader].store, views[side]];
    const fork = facts.difference?.step;
    if (what !== "both") {
      const other = leader !== side;
      const axes = [side, leader].map((one) => this.ghost.axes[one]);
      const at = other ? stepFor(models[side], axes, from.step, fork) : from.step;
      const chosen = other ? this.partnerOf(side, from.selected) : from.selected;
      to.goTo(step ?? at);
      to.store.set({ selected: selected === undefined ? chosen : selected, touched: true });
    } else if (leader) {
      // The picture's selection is A's.
      views[0].store.set({ selected: this.partnerOf(0, from.selected) });
    }
    for (const view of views) view.play(false);
    this.shows = what;
    this.picture.hidden = what !== "both";
    this.hosts.forEach((host, i) => {
      host.hidden = what === "both" || i !== side;
    });
    this.render();
    if (what === "both") this.ghost.element.focus({ preventScroll: true });
    else await this.openBoard(side);
  }

  async openBoard(side: number) {
    const { views, signal, fixedTheme: theme, logs, load, hosts } = this;
    let board = this.boards[side];
    if (!board) {
      const opened = new Board(hosts[side], { signal, view: views[side], theme });
      opened.reload = (log) => load(opened, log, {});
      this.boards[side] = board = opened;
      const { step, selected } = views[side].store;
      await load(board, logs[side], { step, selected });
    }
    board.root.focus({ preventScroll: true });
  }

  render() {
    const { facts, views, root } = this;
    if (!this.ghost) return;
    this.laidOutFor = root.clientWidth;
    this.writeVerdict();
    if (this.shows === "both" && this.laidOutFor) {
      const unit = this.laidOutFor >= 1800 ? 1.5 : 1;
      root.dataset.columns = this.laidOutFor / unit >= 980 ? "2" : "1";
      this.ghost.draw(unit);
      this.ways?.draw(this.theme, unit);
      this.requests.show(this.context(0));
      const { left } = this.ghost;
      this.summary.textContent = left
        ? `and ${plural(left, "more request")} with smaller gaps: every request in numbers`
        : "Every request in numbers";
    }
    const buttons: NodeListOf<HTMLElement> = root.querySelectorAll(".switch button");
    for (const button of buttons) {
      const { shows } = button.dataset;
      if (shows) button.setAttribute("aria-pressed", String(shows === this.shows));
      else button.hidden = this.shows !== "both"; // a board has its own
    }
    Object.assign(root.dataset, {
      shows: this.shows,
      step: views[0].store.step,
      selected: views[0].store.selected ?? "",
      axis: this.ghost.kind,
      fork: facts.difference?.step ?? "",
      requests: this.models[0].requests.length,
    });
  }

  writeVerdict() {
    const { facts, models, ghost } = this;
    const spans = headline(facts, models[0], ghost.ends, ghost.kind);
    const nodes = spans.map(({ text = "", bold, jump, request }) => {
      if (request != null) return chip(request, { ...this.context(0), selected: null });
      if (jump) return h("button.jump", { "data-jump": jump }, text);
      return bold ? h("strong", text) : text;
    });
    patchChildren(this.verdict, nodes);
  }

  /** Shows the table of all requests, or hides it again. */
  toggleTable() {
    this.tables.open = !this.tables.open;
    if (this.tables.open) this.requests.element.focus({ preventScroll: false });
  }

  clicked(event: Event) {
    const jump = closest(event, "[data-jump]");
    if (jump) return this.show("a", { step: Number(jump.dataset.jump) });
    const shows = closest(event, "button[data-shows]")?.dataset.shows;
    if (shows === "both" || shows === "a" || shows === "b") return this.show(shows);
    if (closest(event, "button[data-tell]")) return this.tellMe();
    if (closest(event, "button[data-axis]")) return this.ghost.changeAxis();
    const named = closest(event, "[data-request]");
    if (!named || named.closest(".run")) return undefined; // a board handles its own clicks
    const side = Number(closest(event, "[data-side]")?.dataset.side ?? 0);
    const id = Number(named.dataset.request);
    this.views[0].store.set({ selected: side ? this.partnerOf(0, id) : id });
    return undefined;
  }
}

/** How to read the picture. */
function legend({ names: [a, b] }: Facts) {
  const entry = (form: string, words: string) =>
    h("li.line", h("i", { class: form, "aria-hidden": "true" }), words);
  return h(
    "ul.how-to-read.small.muted",
    { "aria-label": "How to read it" },
    entry("solid", `${a}: solid, as everywhere`),
    entry("outline", `${b}: an outline below it, from the fork on`),
    entry("sooner", `the gap: the request ends sooner in ${b}`),
    entry("later", `the gap: the request ends later in ${b}`),
  );
}
