/** Why one request was slow: a sentence, its bar, and a row per cause. The rows add up to the total. */

import type { Board } from "../board/board.ts";
import { Part } from "../board/part.ts";
import { type Description, patchChildren } from "../board/patch_children.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { closest, h } from "../drawing/html.ts";
import { drawBar, drawFlag, partsOf } from "../drawing/waterfall_bar.ts";
import { chip, levelDot, wordNodes } from "../drawing/words_html.ts";
import { Absent } from "../model/indexed_events.ts";
import { type Knowledge, LEVELS, lacks } from "../model/knowledge.ts";
import type { RequestTime } from "../model/waterfall.ts";
import {
  type CauseRow,
  causeRows,
  headline,
  helped,
  rowWords,
  timeWords,
} from "../model/waterfall_words.ts";
import { missedWords, whyMissed } from "../model/why_missed.ts";
import { digits } from "../model/words.ts";
import type { Late, WaterfallContext } from "./waterfall_panel.ts";

type Unit = "us" | "steps";

const HIGH = 30;
const TOP = 14;
const STEPS = 4; // that are linked; of more, the first and the number

export class WhySlow extends Part {
  /** Opens a step. */
  goTo: (step: number, request: number) => void;
  title = h("h2");
  words = h("p.headline");
  bar = h("canvas", { "aria-hidden": "true" });
  painter = new CanvasPainter(this.bar);
  body = h("tbody", { click: (event) => this.clicked(event) });
  helped = h("p.helped");
  missed = h("p.helped.missed");
  sum = h("p.note.muted");
  element = h(
    "div.why",
    this.title,
    this.words,
    this.bar,
    h(
      "table",
      h(
        "thead.for-screen-readers",
        h("tr", ...["time", "cause", "source"].map((one) => h("th", { scope: "col" }, one))),
      ),
      this.body,
    ),
    this.helped,
    this.missed,
    this.sum,
  );
  /** The request that is explained. */
  id!: number;

  constructor(board: Board, goTo: (step: number, request: number) => void) {
    super(board);
    this.goTo = goTo;
  }

  clicked(event: Event) {
    const step = closest(event, "[data-step]")?.dataset.step;
    if (step) this.goTo(Number(step), this.id);
  }

  write(time: RequestTime | undefined, context: WaterfallContext, late: Late) {
    this.element.hidden = !time;
    if (!time) return;
    const { model } = context;
    const { unit } = model.waterfall;
    this.id = time.request.id;
    const isSlow = late.first || late.gaps;
    const name = chip(this.id, context);
    patchChildren(
      this.title,
      isSlow ? ["Why was ", name, " slow?"] : ["Where the time of ", name, " went"],
    );
    patchChildren(this.words, wordNodes(headline(model, time), context));
    this.draw(time, unit);
    const rows = causeRows(time, model.source);
    patchChildren(this.body, [
      ...rows.map((row) => rowOf(row, time, context, unit)),
      tr("no value", ["time in the client and on the network"], "unknown"),
    ]);
    const help = helped(time);
    this.helped.hidden = !help.length;
    patchChildren(this.helped, [
      h("strong", "What would have helped "),
      ...wordNodes(help, context),
      ". ",
      levelDot("inferred"),
    ]);
    this.writeMissed(context);
    const total = timeWords(time.total, unit);
    patchChildren(this.sum, [
      ...LEVELS.flatMap((one) => [levelDot(one), ` ${SOURCES[one]}  `]),
      h("br"),
      `The times above add up to ${total}. Click a part of a bar to go to its step.`,
    ]);
  }

  /** Writes what the request found in the cache, and why it was not more. */
  writeMissed(context: WaterfallContext) {
    const { model } = context;
    if (lacks(model, "cached_tokens")) return;
    let answer: ReturnType<typeof whyMissed>;
    try {
      answer = whyMissed(model, this.id);
    } catch (error) {
      return void Absent.fetch(error, () => this.writeMissed(context));
    }
    const sentences = missedWords(model, answer).flatMap((words) => [
      ...wordNodes(words, context),
      ". ",
    ]);
    const isMiss = answer.kind !== "whole" && answer.kind !== "waiting";
    const title = isMiss ? "Why did it miss the cache? " : "What it found in the cache ";
    patchChildren(this.missed, [h("strong", title), ...sentences, levelDot(answer.mark)]);
    this.missed.dataset.kind = answer.kind;
  }

  draw(time: RequestTime, unit: Unit) {
    const { board, painter } = this;
    const width = this.element.clientWidth / board.unit;
    painter.begin(width, TOP + HIGH + 4, board.unit, board.theme);
    if (!time.spans.length) return;
    const start = time.spans[0].start;
    const x = (at: number) => ((at - start) * width) / time.total;
    const base = TOP + HIGH;
    drawBar(painter, partsOf(time.spans, x), base, { high: HIGH });
    if (time.firstToken === null) return;
    const at = x(start + time.firstToken);
    painter.line(at, 2, at, base + 3, board.theme.ink, 1.5);
    const words = `first token ${timeWords(time.firstToken, unit)}`;
    drawFlag(painter, words, at, 10, width);
  }
}

const SOURCES: Record<Knowledge, string> = {
  recorded: "recorded in the log",
  inferred: "inferred from it",
  unknown: "unknown",
};

function rowOf(row: CauseRow, time: RequestTime, context: WaterfallContext, unit: Unit) {
  const words = wordNodes(rowWords(context.model, time, row), context);
  return tr(timeWords(row.time, unit), [...words, " ", ...stepLinks(row.steps)], row.mark);
}

function tr(time: string, words: (Node | Description | string)[], source: Knowledge) {
  return h(
    "tr",
    h("th", { scope: "row" }, time),
    h("td", ...words),
    h("td.from", levelDot(source)),
  );
}

/** "steps 21, 29, 36", each a button; of many, the first and how many there are. */
function stepLinks(steps: number[]) {
  const link = (step: number, words: string, label?: string) =>
    h("button.step.muted", { "data-step": step, "aria-label": label }, words);
  if (steps.length > STEPS)
    return [link(steps[0], `${digits(steps.length)} steps from ${steps[0]}`)];
  const links = steps.map((step) => link(step, String(step), `step ${step}`));
  const apart = links.flatMap((one, index) => (index ? [", ", one] : [one]));
  return [h("span.muted", steps.length > 1 ? "steps " : "step ", ...apart)];
}
