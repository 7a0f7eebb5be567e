/**
 * Why one request was slow: a sentence, its bar, and a row per cause. The rows add up to the total.
 *
 * @typedef {"us" | "steps"} Unit
 */

/** @import { Board } from "../board/board.js" */
/** @import { Knowledge } from "../model/knowledge.js" */
/** @import { RequestTime } from "../model/waterfall.js" */
/** @import { CauseRow } from "../model/waterfall_words.js" */
/** @import { Late, WaterfallContext } from "./waterfall_panel.js" */
import { patchChildren } from "../board/patch_children.js";
import { CanvasPainter } from "../drawing/canvas_painter.js";
import { closest, h } from "../drawing/html.js";
import { drawBar, partsOf } from "../drawing/waterfall_bar.js";
import { chip, levelDot, wordNodes } from "../drawing/words_html.js";
import { LEVELS } from "../model/knowledge.js";
import { causeRows, headline, helped, rowWords, timeWords } from "../model/waterfall_words.js";
import { missedWords, whyMissed } from "../model/why_missed.js";

const HIGH = 30;
const TOP = 14;
const STEPS = 4; // that are linked; of more, the first and the number

export class WhySlow {
  /** `goTo` opens a step. @param {Board} board @param {(step: number, request: number) => void} goTo */
  constructor(board, goTo) {
    this.board = board;
    this.goTo = goTo;
    this.title = h("h2", {});
    this.words = h("p", { class: "headline" });
    this.bar = h("canvas", { "aria-hidden": "true" });
    this.body = h("tbody", {});
    this.helped = h("p", { class: "helped" });
    this.missed = h("p", { class: "helped missed" });
    this.sum = h("p", { class: "note muted" });
    this.element = h(
      "div",
      { class: "why" },
      this.title,
      this.words,
      this.bar,
      h(
        "table",
        {},
        h(
          "thead",
          { class: "for-screen-readers" },
          h("tr", {}, ...["time", "cause", "source"].map((one) => h("th", { scope: "col" }, one))),
        ),
        this.body,
      ),
      this.helped,
      this.missed,
      this.sum,
    );
    this.painter = new CanvasPainter(this.bar);
    this.body.addEventListener("click", (event) => {
      const step = closest(event, "[data-step]")?.dataset.step;
      if (step) this.goTo(Number(step), this.id);
    });
  }

  /** @param {RequestTime | undefined} time @param {WaterfallContext} context @param {Late} late */
  write(time, context, late) {
    this.element.hidden = !time;
    if (!time) return;
    const { model } = context;
    const { unit } = model.waterfall;
    /** The request that is explained. @type {number} */
    this.id = time.life.id;
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
      h("strong", {}, "What would have helped "),
      ...wordNodes(help, context),
      ". ",
      levelDot("inferred"),
    ]);
    this.writeMissed(context);
    const total = timeWords(time.total, unit);
    patchChildren(this.sum, [
      ...LEVELS.flatMap((one) => [levelDot(one), ` ${SOURCES[one]}  `]),
      h("br", {}),
      `The times above add up to ${total}. Click a part of a bar to go to its step.`,
    ]);
  }

  /** Writes what the request found in the cache, and why it was not more. @param {WaterfallContext} context */
  writeMissed(context) {
    const { model } = context;
    const answer = whyMissed(model, this.id);
    const sentences = missedWords(model, answer).flatMap((words) => [
      ...wordNodes(words, context),
      ". ",
    ]);
    const isMiss = answer.kind !== "whole" && answer.kind !== "waiting";
    const title = isMiss ? "Why did it miss the cache? " : "What it found in the cache ";
    patchChildren(this.missed, [h("strong", {}, title), ...sentences, levelDot(answer.mark)]);
    this.missed.dataset.kind = answer.kind;
  }

  /** @param {RequestTime} time @param {Unit} unit */
  draw(time, unit) {
    const { board, painter } = this;
    const { ink, ground } = board.theme;
    const width = this.element.clientWidth / board.unit;
    painter.begin(width, TOP + HIGH + 4, board.unit, board.theme);
    if (!time.spans.length) return;
    const start = time.spans[0].start;
    /** @param {number} at */
    const x = (at) => ((at - start) * width) / time.total;
    const base = TOP + HIGH;
    drawBar(painter, partsOf(time.spans, x), base, { high: HIGH });
    if (time.firstToken === null) return;
    const at = x(start + time.firstToken);
    painter.line(at, 2, at, base + 3, ink, 1.5);
    const words = `first token ${timeWords(time.firstToken, unit)}`;
    const isLeft = at + painter.measure(words, { bold: true }) + 6 > width;
    painter.text(words, isLeft ? at - 4 : at + 4, 10, {
      bold: true,
      halo: ground,
      align: isLeft ? "right" : "left",
    });
  }
}

/** @type {Record<Knowledge, string>} */
const SOURCES = {
  recorded: "recorded in the log",
  inferred: "inferred from it",
  unknown: "unknown",
};

/** @param {CauseRow} row @param {RequestTime} time @param {WaterfallContext} context @param {Unit} unit */
function rowOf(row, time, context, unit) {
  const words = wordNodes(rowWords(context.model, time, row), context);
  return tr(timeWords(row.time, unit), [...words, " ", ...stepLinks(row.steps)], row.mark);
}

/** @param {string} time @param {(Node | string)[]} words @param {Knowledge} source */
function tr(time, words, source) {
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, time),
    h("td", {}, ...words),
    h("td", { class: "from" }, levelDot(source)),
  );
}

/** "steps 21, 29, 36", each a button; of many, the first and how many there are. @param {number[]} steps */
function stepLinks(steps) {
  /** @param {number} step @param {string} words @param {string} [label] */
  const link = (step, words, label) =>
    h("button", { type: "button", class: "step", "data-step": step, "aria-label": label }, words);
  if (steps.length > STEPS) return [link(steps[0], `${steps.length} steps from ${steps[0]}`)];
  const links = steps.map((step) => link(step, String(step), `step ${step}`));
  const apart = links.flatMap((one, index) => (index ? [", ", one] : [one]));
  return [h("span", { class: "muted" }, steps.length > 1 ? "steps " : "step ", ...apart)];
}
