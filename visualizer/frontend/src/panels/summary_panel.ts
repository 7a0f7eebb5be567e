/** The run in one row: its size, latencies, goodput against the reader's limits, preemptions, hits and waits. */

import { made, patchChildren } from "../board/patch_children.ts";
import { nameTerms } from "../board/terms.ts";
import { causeWords, paintCause } from "../drawing/causes.ts";
import { focused, h, plural } from "../drawing/html.ts";
import type { Theme } from "../drawing/palette.ts";
import { halved, levelDot } from "../drawing/words_html.ts";
import { duration } from "../model/duration.ts";
import {
  type Fact,
  factsAt,
  halfDot,
  type Knowledge,
  knowledgeWords,
  LEVELS,
  lacks,
  levelOf,
  partWords,
} from "../model/knowledge.ts";
import type { Model } from "../model/model.ts";
import { type Percentile, RunSummary, type Slo, type Summary } from "../model/run_summary.ts";
import { digits } from "../model/words.ts";

export class SummaryPanel {
  setSlo: (slo: Slo) => void;
  /** What the row shows. */
  key = "";
  cells = runCells();
  goodput = h("button.cell.stack", {
    "data-act": "slo",
    "data-term": "goodput",
    click: () => this.toggle(),
  });
  fields = ["ttft", "itl"].map((name) =>
    h("input", { type: "number", min: "0", step: "any", name, input: () => this.read() }),
  );
  box = h(
    "div.box.slo",
    { role: "dialog", "aria-label": "Limits of the goodput", hidden: true },
    h("label", "TTFT at most", this.fields[0], "ms"),
    h("label", "ITL, p99 of a request, at most", this.fields[1], "ms"),
  );
  element = h("div.summary", this.cells);
  summary!: RunSummary;
  figures!: Summary | null;

  /** `setSlo` is called when the reader changes the limits. */
  constructor(setSlo: (slo: Slo) => void) {
    this.setSlo = setSlo;
  }

  setModel(model: Model) {
    if (this.summary?.model !== model) this.summary = new RunSummary(model);
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

  /**
   * Writes the row; it stays the same while the reader steps. `lastOfLog` is the last step of a log of which a notebook
   * may have saved a part.
   */
  write({ slo }: { slo: Slo }, theme: Theme, lastOfLog: number) {
    const key = `${slo.ttft} ${slo.itl} ${theme.name} ${lastOfLog}`;
    if (this.figures && this.key === key) return;
    this.key = key;
    const figures = this.summary.of(slo);
    const { model } = this.summary;
    this.figures = figures;
    this.fields.forEach((field, i) => {
      if (field !== focused(field)) field.value = `${(i ? slo.itl : slo.ttft) / 1000}`;
    });
    const { goodput } = this;
    patchChildren(goodput, goodputNodes(figures, slo, levelOf(model, ["arrivals", "step_times"])));
    const cells = cellsOf(figures, theme, model, partWords(model, lastOfLog));
    for (const one of cells) nameTerms(one.querySelector(".name"));
    patchChildren(this.cells, [...cells.slice(0, 4), goodput, ...cells.slice(4)]);
  }
}

/** The row of figures. */
export const runCells = () =>
  h("div.cells", { tabindex: "0", role: "group", "aria-label": "The run" });

export const cell = (name: string, bold: string, rest?: string, ...after: Node[]) =>
  h("div.cell.stack", ...parts(name, bold, rest, after));

const parts = (name: string, bold: string, rest: string = "", after: Node[] = [] as Node[]) => [
  h("span.name.cut.small.muted", name),
  h("span.value.small.muted", h("strong", bold), ...halved(rest && ` ${rest}`), ...after),
];

/** "vLLM 0.32.0, underglass-vllm 1"; "run" for a log of our own engine. */
const originWords = ({ source: { engine, recorder } }: Model) =>
  engine ? `${engine}, ${recorder}` : "run";

/** Less time without a step than this share of the run is not worth words. */
const IDLE_SHARE = 0.01;

/** How many facts of a foreign log are recorded, inferred and unknown, with their signs. */
const countedLevels = (model: Model) =>
  model.source.engine
    ? LEVELS.map((level) => h("span.known", levelDot(level), `${factsAt(model, level).length}`))
    : [];

const percent = (part: number, whole: number) => `${Math.round((100 * part) / whole)} %`;

function cellsOf(figures: Summary, theme: Theme, model: Model, part: string) {
  const { steps, duration: took, busy, requests, ends, preemptions, found, asked } = figures;
  const finished = (ends.stop ?? 0) + (ends.length ?? 0);
  const words = { unfinished: "unfinished", abort: "aborted", error: "failed" };
  const others = Object.entries(words).flatMap(([end, word]) =>
    ends[end] ? [`${digits(ends[end])} ${word}`] : [],
  );
  const ended = others.join(", ") || (finished ? "all finished" : "");
  const other = took - busy >= IDLE_SHARE * took ? `, ${duration(took - busy)} paused or idle` : "";
  /** The cell, or that the log lacks its facts. */
  const told = (name: string, facts: Fact[], figure: HTMLElement) => {
    if (lacks(model, ...facts)) return cell(name, knowledgeWords.unknown);
    if (levelOf(model, facts) === "inferred")
      figure.querySelector("strong")?.before(made(levelDot("inferred")), " ");
    return figure;
  };
  const shareOf = (tokens: number) => (asked ? percent(tokens, asked) : "none");
  const below = (["host", "disk"] as const).filter((tier) => model.settings[`${tier}_kv_tokens`]);
  const prompts = asked ? `of ${plural(asked, "prompt token")}` : "";
  return [
    cell(
      `${originWords(model)}${part && ", a part of it"}`,
      part || plural(steps, "step"),
      took > 0 ? `${halfDot(model, "step_times")}${duration(busy)}${other}` : "",
      ...countedLevels(model),
    ),
    told("requests", ["arrivals"], cell("requests", digits(requests), ended)),
    told("TTFT", ["arrivals", "step_times"], percentileCell("TTFT", figures.ttft)),
    told(
      "ITL",
      ["scheduled_tokens", "admissions", "step_times"],
      percentileCell("ITL", figures.itl),
    ),
    told("preemptions", ["preemptions"], cell("preemptions", digits(preemptions))),
    told("prefix hits", ["cached_tokens"], cell("prefix hits", shareOf(found), prompts)),
    ...(below.length
      ? [
          cell(
            `fetched from ${below.join(", ")}`,
            below.map((tier) => shareOf(figures.fetched[tier])).join(", "),
          ),
        ]
      : []),
    ...(figures.drafted ? [draftCell(figures)] : []),
    told("waited", ["queue"], waitCell(figures, theme, halfDot(model, "waiting_reasons"))),
  ];
}

/** How many drafts were accepted, and what a step gained by them. */
const draftCell = ({ drafted, accepted, gained }: Summary) =>
  cell("drafts accepted", percent(accepted, drafted), `${gained.toFixed(2)} tokens/pass`);

function percentileCell(name: string, percentiles: Percentile[]) {
  if (!percentiles.length) return cell(name, "none");
  const names = percentiles.map((one) => one.name).join(", ");
  return cell(`${name} ${names}`, percentiles.map(({ value }) => duration(value)).join(", "));
}

function goodputNodes({ good, requests, duration: took }: Summary, slo: Slo, level: Knowledge) {
  const ms = (limit: number) => Number((limit / 1000).toPrecision(3));
  const rate = took > 0 ? `${((1e6 * good) / took).toPrecision(3)} requests/s` : "";
  const name = `goodput: TTFT ≤ ${ms(slo.ttft)}, ITL p99 ≤ ${ms(slo.itl)} ms`;
  if (level === "unknown") return parts(name, knowledgeWords.unknown);
  const nodes = parts(name, `${digits(good)} of ${digits(requests)}`, rate);
  if (level === "inferred") nodes[1].prepend(made(levelDot(level)), " ");
  return nodes;
}

/** The total wait, and a bar with a part for each cause. */
function waitCell({ waits, waited, waitUnit }: Summary, theme: Theme, mark: string) {
  if (!waited) return cell("waited", "never");
  const amountOf = (amount: number) =>
    waitUnit === "us" ? duration(amount) : plural(amount, "step");
  const [most] = waits;
  const words = most ? `: ${mark}${causeWords(most.cause)} ${percent(most.amount, waited)}` : "";
  const bar = h("span.waits");
  for (const { cause, amount } of waits) {
    const part = h("i", { title: `${causeWords(cause)}: ${amountOf(amount)}` });
    part.style.flexGrow = `${amount / waited}`;
    paintCause(part, theme, cause);
    bar.append(part);
  }
  const said = waits.map(({ cause, amount }) => `${causeWords(cause)} ${amountOf(amount)}`);
  return h(
    "div.cell.stack.wide",
    h("span.name.cut.small.muted", "waited ", h("strong", amountOf(waited)), ...halved(words)),
    bar,
    h("span.for-screen-readers", said.join(", ")),
  );
}
