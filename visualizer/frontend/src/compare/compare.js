/**
 * The comparison of two runs: their differences as text, both timelines with one axis and one cursor, the
 * decisions of a step side by side, and a table of what changed. Python computes it, see `comparison.py`.
 */

import { Board } from "../board/board.js";
import { buildSheet, spansOf } from "../board/sheet.js";
import { View, viewOf } from "../board/view.js";
import { h } from "../drawing/html.js";
import { chip, wordNodes } from "../drawing/words_html.js";
import { bytesFor, missing, modelOf, partOnly } from "../host/notebook.js";
import { moveInto, remember, sendPicture } from "../host/outputs.js";
import { saveWith } from "../host/saved_state.js";
import { duration } from "../model/duration.js";
import { requestTable, totalsTable } from "./compare_tables.js";
import { LinkedViews, timeOf } from "./linked_views.js";

/** anywidget's `render` of a comparison. `load(board, log, opening)` draws a log. */
export const comparisonInNotebook =
  (load) =>
  async ({ model: traits, el, signal = new AbortController().signal, host }) => {
    const references = [traits.get("a"), traits.get("b")];
    const key = references.join();
    if (moveInto(el, key)) return;
    const shared = await Promise.all(references.map((name) => modelOf(traits, host, name)));
    const views = references.map((name) => viewOf(name));
    shared.forEach((one, side) =>
      one.on("msg:custom", (message, buffers) => message.log && views[side].gotLog?.(buffers[0])),
    );
    const logs = await Promise.all(
      views.map((view, side) => (view.bytes ??= bytesFor(view, shared[side]))),
    );
    const facts = traits.get("facts");
    const page = new ComparisonPage(el, { facts, views, signal });
    const { root } = page.sheet;
    remember(el, key, root, signal);
    sendPicture(traits, root, () => [page.sheet, ...page.boards.flat()], signal);
    saveWith(traits.widget_manager);
    const lost = shared.findIndex((_, side) => !logs[side].byteLength);
    if (lost >= 0) return page.showMessage(`${facts.names[lost]}: ${missing(shared[lost])}`);
    await page.fill(logs, load);
    const part = shared.find((one, side) => !one.get("whole") && !views[side].isWhole);
    if (part) root.append(partOnly(part));
  };

/** Draws a comparison in `host`. `logs` are the bytes of two logs, `facts` the kernel's comparison of them. */
export async function drawComparison(
  host,
  {
    logs,
    facts,
    load,
    theme,
    views = [new View(), new View()],
    signal = new AbortController().signal,
  },
) {
  const page = new ComparisonPage(host, { facts, views, theme, signal });
  await page.fill(logs, load);
  return page;
}

class ComparisonPage {
  constructor(host, { facts, views, theme, signal }) {
    Object.assign(this, { facts, views, signal, fixedTheme: theme });
    this.sheet = buildSheet(host, {
      name: "compare",
      label: "Comparison of two runs",
      signal,
      theme,
      onTheme: () => this.write(),
    });
    const { root } = this.sheet;
    this.verdict = h("p", { class: "sentence verdict" });
    this.moments = [h("span", { class: "count" }), h("span", { class: "count" })];
    const box = (side, kind) => h("div", { class: kind, "data-side": side });
    this.timelines = [0, 1].map((side) => box(side, "run"));
    this.decisions = [0, 1].map((side) => box(side, "run"));
    this.tables = h("div", { class: "tables" });
    root.append(
      this.verdict,
      this.changes(),
      ...(facts.note ? [h("p", { class: "changes-line model-error muted" }, facts.note)] : []),
      ...this.timelines.flatMap((timeline, side) => [this.title(side), timeline]),
      h("div", { class: "pair" }, ...this.decisions),
      this.tables,
    );
    root.addEventListener("click", (event) => this.clicked(event), { signal });
    for (const view of views) view.store.listen(() => this.write(), signal);
  }

  /** Shows a message in place of the runs. */
  showMessage(words) {
    this.verdict.textContent = words;
    this.sheet.root.dataset.ready = "empty";
  }

  title(side) {
    const { names } = this.facts;
    const nodes = [h("strong", {}, names[side]), this.moments[side]];
    if (side === 0) nodes.push(this.clocks());
    return h("h2", { class: "title" }, ...nodes);
  }

  /** The buttons that choose which moments of the runs correspond. */
  clocks() {
    const choice = (clock, words) =>
      h(
        "button",
        { type: "button", "data-clock": clock, "aria-pressed": String(clock === "step") },
        words,
      );
    return h(
      "span",
      { class: "clocks", role: "group", "aria-label": "Link the cursors by" },
      "link the cursors by ",
      choice("step", "step"),
      " ",
      choice("time", "time"),
    );
  }

  /** The differences of the runs' settings and arrivals, as a line. */
  changes() {
    const { settings, inputs } = this.facts;
    const lines = settings.map(([name, a, b]) =>
      h("span", {}, h("strong", {}, name), ` ${a} → ${b}`),
    );
    lines.push(...inputs.map((line) => h("span", {}, line.replace("->", "→"))));
    if (!lines.length) lines.push(h("span", { class: "muted" }, "equal settings and arrivals"));
    return h("p", { class: "changes-line" }, ...lines);
  }

  /** The requests that only one of the runs has. */
  alone() {
    const { unmatched, names } = this.facts;
    return unmatched.flatMap((ids, side) => {
      if (!ids.length) return [];
      const few = ids.slice(0, ids.length > 5 ? 4 : 5);
      const shown = few.flatMap((id, i) => [i ? " " : "", chip(id, this.context(side))]);
      const more = ids.length > few.length ? ` and ${ids.length - few.length} more` : "";
      return [h("span", { "data-side": side }, `only in ${names[side]}: `, ...shown, more)];
    });
  }

  async fill(logs, load) {
    const { views, facts, signal, fixedTheme } = this;
    const { difference } = facts;
    const boardOf = (hosts, panel) =>
      views.map(
        (view, side) =>
          new Board(hosts[side], { signal, view, panel, theme: fixedTheme, linkOf: () => "" }),
      );
    this.boards = [boardOf(this.timelines, "timeline"), boardOf(this.decisions, "scheduler")];
    const opening = (side) =>
      difference ? { step: difference.step, selected: difference.requests[side] } : {};
    await Promise.all(
      this.boards.flatMap((pair) =>
        pair.map((board, side) => load(board, logs[side], opening(side))),
      ),
    );
    if (signal.aborted) return;
    if (views.some(({ model }) => !model)) {
      this.sheet.root.dataset.ready = "error";
      return;
    }
    this.boards.flat().forEach(({ panels: [{ element }] }, i) => {
      const label = element.getAttribute("aria-label");
      element.setAttribute("aria-label", `${label}, ${facts.names[i % 2]}`);
    });
    this.linked = new LinkedViews(views, facts, signal);
    this.sheet.root.querySelector(".changes-line").append(...this.alone());
    this.shareAxis();
    if (facts.axis === "time") this.linked.setAxis("time");
    this.tables.append(totalsTable(facts), (this.requests = requestTable(facts)));
    this.write();
    this.sheet.root.dataset.ready = "true";
  }

  /** Gives both timelines the same window; one of them has the controls. */
  shareAxis() {
    const times = this.boards[0].map((board) => board.time);
    const shorter = times[0].log.last < times[1].log.last ? 0 : 1;
    this.timelines[shorter].classList.add("follows");
    times.forEach((time, side) => {
      time.together = times;
      time.measureTime();
      time.view = null;
      this.boards[0][side].layout();
    });
    const [one, two] = this.views;
    const follow = (from, to) => (names) => {
      if (!names.has("window") && !names.has("step")) return;
      const { view, timeAxis } = times[from];
      const other = times[to].view;
      if (timeAxis.kind !== times[to].timeAxis.kind) return; // the other axis changes next
      if (view.from !== other.from || view.to !== other.to) times[to].look({ ...view });
    };
    one.store.listen(follow(0, 1), this.signal);
    two.store.listen(follow(1, 0), this.signal);
  }

  context(side) {
    const { model, store } = this.views[side];
    return { model, theme: this.sheet.theme, selected: store.selected };
  }

  write() {
    const { facts, views, sheet } = this;
    if (!this.linked) return;
    const words = (side) =>
      wordNodes(spansOf(facts.difference[side ? "b" : "a"], views[side].model), this.context(side));
    if (facts.difference) {
      const { step } = facts.difference;
      const jump = h(
        "button",
        { type: "button", class: "jump", "data-jump": step },
        `Step ${step}`,
      );
      const said = (side) => h("span", { "data-side": side }, ...words(side));
      const [a, b] = facts.names.map((name) => h("strong", {}, name));
      const nodes = [
        "The first decision that differs, ",
        jump,
        ": in ",
        a,
        " ",
        said(0),
        "; in ",
        b,
        " ",
        said(1),
        ".",
      ];
      this.verdict.replaceChildren(...nodes);
    } else this.verdict.replaceChildren(facts.verdict);
    views.forEach(({ model, store }, side) => {
      const at = timeOf(model, store.step);
      const time = at >= 0 ? `, ${duration(at)}` : "";
      const ended = store.step === model.lastStep ? ", its last" : "";
      this.moments[side].textContent = `step ${store.step}${ended}${time}`;
    });
    this.requests.show(this.context(0));
    for (const button of sheet.root.querySelectorAll("button[data-clock]"))
      button.setAttribute("aria-pressed", String(button.dataset.clock === this.linked.clock));
    Object.assign(sheet.root.dataset, {
      step: views[0].store.step,
      stepB: views[1].store.step,
      selected: views[0].store.selected ?? "",
      selectedB: views[1].store.selected ?? "",
      clock: this.linked.clock,
    });
  }

  clicked({ target }) {
    const jump = target.closest("[data-jump]");
    if (jump) return this.views.forEach((view) => view.goTo(Number(jump.dataset.jump)));
    const clock = target.closest("button[data-clock]")?.dataset.clock;
    if (clock) return this.linked.setAxis(clock === "time" ? "time" : "steps");
    const named = target.closest("[data-request]");
    if (!named || named.closest(".run")) return undefined; // a board handles its own clicks
    const side = Number(named.closest("[data-side]")?.dataset.side ?? 0);
    this.views[side].store.set({ selected: Number(named.dataset.request) });
    return undefined;
  }
}
