/** The run in one row: its size, latencies, goodput against the reader's limits, preemptions, hits and waits. */

/** @import { Theme } from "../drawing/palette.js" */
/** @import { Model } from "../model/model.js" */
/** @import { Percentile, Slo, Summary } from "../model/run_summary.js" */
import { patchChildren } from "../board/patch_children.js";
import { causeColour, causeWords } from "../drawing/causes.js";
import { focused, h, plural } from "../drawing/html.js";
import { duration } from "../model/duration.js";
import { RunSummary } from "../model/run_summary.js";

export class SummaryPanel {
  /** `setSlo` is called when the reader changes the limits. @param {(slo: Slo) => void} setSlo */
  constructor(setSlo) {
    this.setSlo = setSlo;
    this.key = ""; // what the row shows
    this.cells = h("div", {
      class: "cells",
      tabindex: "0",
      role: "group",
      "aria-label": "The run",
    });
    this.goodput = h("button", { type: "button", class: "cell", "data-act": "slo" });
    this.goodput.addEventListener("click", () => this.toggle());
    this.fields = ["ttft", "itl"].map((name) => {
      const input = h("input", { type: "number", min: "0", step: "any", name });
      input.addEventListener("input", () => this.read());
      return input;
    });
    const [ttft, itl] = this.fields;
    this.box = h(
      "div",
      { class: "box slo", role: "dialog", "aria-label": "Limits of the goodput", hidden: true },
      h("label", {}, "TTFT at most", ttft, "ms"),
      h("label", {}, "ITL, p99 of a request, at most", itl, "ms"),
    );
    this.element = h("div", { class: "summary" }, this.cells);
  }

  /** @param {Model} model */
  setModel(model) {
    const { summary } = this;
    if (summary?.model !== model) {
      /** @type {RunSummary} */
      this.summary = new RunSummary(model);
    }
    /** @type {Summary | null} */
    this.figures = null;
  }

  toggle() {
    this.box.hidden = !this.box.hidden;
    if (this.box.hidden) this.goodput.focus({ preventScroll: true });
    else this.fields[0].focus({ preventScroll: true });
  }

  read() {
    const [ttft, itl] = this.fields.map(({ valueAsNumber }) => 1000 * valueAsNumber);
    if (ttft >= 0 && itl >= 0) this.setSlo({ ttft, itl });
  }

  /** Writes the row; it stays the same while the reader steps. @param {{slo: Slo}} store @param {Theme} theme */
  write({ slo }, theme) {
    const key = `${slo.ttft} ${slo.itl} ${theme.name}`;
    if (this.figures && this.key === key) return;
    this.key = key;
    const figures = this.summary.of(slo);
    this.figures = figures;
    this.fields.forEach((field, i) => {
      if (field !== focused(field)) field.value = `${(i ? slo.itl : slo.ttft) / 1000}`;
    });
    const { goodput } = this;
    patchChildren(goodput, goodputNodes(figures, slo));
    const cells = cellsOf(figures, theme);
    patchChildren(this.cells, [...cells.slice(0, 4), goodput, ...cells.slice(4)]);
  }
}

/** @param {string} name @param {string} bold @param {string} [rest] */
const cell = (name, bold, rest) => h("div", { class: "cell" }, ...parts(name, bold, rest));

/** @param {string} name @param {string} bold @param {string} [rest] */
const parts = (name, bold, rest = "") => [
  h("span", { class: "name" }, name),
  h("span", { class: "value" }, h("strong", {}, bold), rest && ` ${rest}`),
];

/** @param {Summary} figures @param {Theme} theme */
function cellsOf(figures, theme) {
  const { steps, duration: took, requests, ends, preemptions, found, asked } = figures;
  const finished = (ends.stop ?? 0) + (ends.length ?? 0);
  const others = /** @type {[number | undefined, string][]} */ ([
    [ends.unfinished, "unfinished"],
    [ends.abort, "aborted"],
    [ends.error, "failed"],
  ]).flatMap(([count, word]) => (count ? [`${count.toLocaleString("en")} ${word}`] : []));
  const ended = others.length ? others.join(", ") : finished ? "all finished" : "";
  return [
    cell("run", plural(steps, "step"), took > 0 ? duration(took) : ""),
    cell("requests", requests.toLocaleString("en"), ended),
    percentileCell("TTFT", figures.ttft),
    percentileCell("ITL", figures.itl),
    cell("preemptions", preemptions.toLocaleString("en")),
    cell(
      "prefix hits",
      asked ? `${Math.round((100 * found) / asked)} %` : "none",
      asked ? `of ${asked.toLocaleString("en")} prompt ${asked === 1 ? "token" : "tokens"}` : "",
    ),
    waitCell(figures, theme),
  ];
}

/** @param {string} name @param {Percentile[]} percentiles */
function percentileCell(name, percentiles) {
  if (!percentiles.length) return cell(name, "none");
  const names = percentiles.map((one) => one.name).join(", ");
  return cell(`${name} ${names}`, percentiles.map(({ value }) => duration(value)).join(", "));
}

/** @param {Summary} figures @param {Slo} slo */
function goodputNodes({ good, requests, duration: took }, slo) {
  /** @param {number} limit */
  const ms = (limit) => Number((limit / 1000).toPrecision(3));
  const rate = took > 0 ? `${((1e6 * good) / took).toPrecision(3)} requests/s` : "";
  const name = `goodput: TTFT ≤ ${ms(slo.ttft)}, ITL p99 ≤ ${ms(slo.itl)} ms`;
  return parts(name, `${good} of ${requests}`, rate);
}

/** The total wait, and a bar with a part for each cause. @param {Summary} figures @param {Theme} theme */
function waitCell({ waits, waited, waitUnit }, theme) {
  /** @param {number} amount */
  const amountOf = (amount) => (waitUnit === "us" ? duration(amount) : plural(amount, "step"));
  /** @param {number} amount */
  const share = (amount) => `${Math.round((100 * amount) / waited)} %`;
  const [most] = waits;
  const words = most ? `: ${causeWords(most.cause)} ${share(most.amount)}` : "";
  const bar = h("span", { class: "waits" });
  for (const { cause, amount } of waits) {
    const part = h("i", { title: `${causeWords(cause)}: ${amountOf(amount)}` });
    part.style.flexGrow = `${amount / waited}`;
    part.style.background = causeColour(theme, cause);
    bar.append(part);
  }
  const said = waits.map(({ cause, amount }) => `${causeWords(cause)} ${amountOf(amount)}`);
  return h(
    "div",
    { class: "cell wide" },
    h(
      "span",
      { class: "name" },
      "waited ",
      h("strong", {}, waited ? amountOf(waited) : "never"),
      words,
    ),
    bar,
    h("span", { class: "for-screen-readers" }, said.join(", ")),
  );
}
