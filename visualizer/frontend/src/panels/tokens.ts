/** The selected request's text: prompt and output, token by token; underlines show probabilities. */

import type { BoardContext, Panel } from "../board/board.ts";
import { Part } from "../board/part.ts";
import { patchChildren } from "../board/patch_children.ts";
import type { CanvasPainter, Paint } from "../drawing/canvas_painter.ts";
import { closest, h, plural } from "../drawing/html.ts";
import { markOf } from "../drawing/marks.ts";
import { chip } from "../drawing/words_html.ts";
import { adapterWords } from "../model/adapters.ts";
import { duration } from "../model/duration.ts";
import type { Frame } from "../model/frame.ts";
import { isSecret, knowledgeWords, missing } from "../model/knowledge.ts";
import { maskWords } from "../model/messages.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { baseline, Painted, paintWords, TITLE } from "./painted.ts";

/** of the selected request */
type Tokens = ReturnType<Frame["tokensOf"]>;

const MOST_PROMPT = 240;
const MOST_OUTPUT = 400;
// px, as in board.css
const HEAD = 22;
const LINE = 20;
const MOST_LINES = 6;
const GAP = 15;

export class TokensPanel extends Part {
  reads: Panel["reads"] = ["selected", "block"];
  /** What the panel shows. */
  written = "";
  shown: number | null = null;
  list = h("div");
  picture = new Painted(this.list);
  painted = [this.picture];
  element = h(
    "section.tokens",
    { "aria-label": "Tokens", click: (event) => this.clicked(event) },
    this.picture.element,
  );
  width!: number;

  layout() {
    this.width = this.element.clientWidth / this.board.unit;
  }

  /** Paints the text, unless a step of the request has drafts or a grammar. */
  paint() {
    const { board, width, picture } = this;
    const { context, span, panel, blocks, key } = this.#read();
    const isPlain =
      span &&
      panel &&
      !panel.guesses &&
      !panel.pending.length &&
      panel.vain === null &&
      !panel.output.some(({ mask }) => mask);
    if (key === this.written || !isPlain || isSecret(span.tokens)) return false;
    const words = summary(panel, span);
    const painter = picture.begin(width, HEAD + MOST_LINES * LINE, board, words);
    const form = { width, size: TITLE.size, line: 16 };
    const name = [{ text: span.name, request: span.id }];
    const left = paintWords(painter, name, form, context)[0].width + 6.6;
    const { muted: color } = board.theme;
    painter.text(painter.cut(words, width - left), left, baseline(TITLE.size, 16), { color });
    paintTokens(painter, width, panel, painter.hue(span.lane), (index) => {
      const own = blocks[Math.floor(index / context.model.settings.block_size)];
      return own != null && own === context.block;
    });
    return true;
  }

  /** What there is to show, and a key of it: a request that has ended or not arrived has the same in every step. */
  #read() {
    const context = this.board.context();
    const { model, frame, theme, selected, block } = context;
    const span = model.request(selected);
    const panel = span && frame.tokensOf(span.id);
    const blocks = (span && frame.table(span.id).blocks) ?? [];
    const key = JSON.stringify([selected, block, theme.name, blocks, panel]);
    return { context, span, panel, blocks, key };
  }

  write() {
    const { context, span, panel, blocks, key } = this.#read();
    const { theme, selected } = context;
    if (key === this.written) return;
    this.written = key;
    patchChildren(this.list, tokenNodes(context, panel, blocks));
    // Only for another request: scrolling forces a layout.
    if (this.shown !== selected) this.element.querySelector(".scroll")?.scrollTo(0, 0);
    this.shown = selected;
    if (span) this.element.style.setProperty("--hue", markOf(theme, span.lane).hue);
  }

  /** Goes to the step that computed an output token, or highlights the block of a prompt token. */
  clicked(event: Event) {
    const { step, block } = closest(event, ".token")?.dataset ?? {};
    if (step) this.board.goTo(Number(step));
    else if (block) this.board.lookAt(Number(block));
  }
}

/** Paints prompt and output, the end of them if they are long; `isLit` tells which have a mark above them. */
function paintTokens(
  painter: CanvasPainter,
  width: number,
  { prompt, output, next }: Tokens,
  hue: string,
  isLit: (index: number) => boolean,
) {
  const { ink, muted, rule, hatch } = painter.theme;
  const style = { size: 13, mono: true };
  let [x, line] = [0, 0];
  const paints: ((top: number) => void)[][] = [[]];
  const put = (
    text: string,
    color: string,
    bar?: Paint | null,
    share = 1,
    index = -1,
    before = 0,
  ) => {
    const wide = painter.measure(text, style);
    if (x && x + before + wide > width) {
      paints.push([]);
      [x, line] = [0, line + 1];
    }
    const left = x + before;
    paints[line].push((top) => {
      painter.text(text, left, top + 12, { ...style, color });
      if (bar) painter.fill(left, top + 17, wide * share, 3, bar);
      if (isLit(index)) painter.fill(left, top, wide, 1.5, ink);
      if (before) painter.fill(left - 6, top, 2, 17, ink);
    });
    x = left + wide + 1;
  };
  const omit = (count: number) => count > 0 && put(`… ${count} before `, muted);
  omit(prompt.length - MOST_PROMPT);
  prompt.forEach(({ text, cached }, i) => {
    if (i >= prompt.length - MOST_PROMPT)
      put(shown(text), muted, cached ? painter.hatch(hatch) : rule, 1, i);
  });
  x += GAP;
  omit(output.length - MOST_OUTPUT);
  output.forEach(({ text, probability }, i) => {
    if (i >= output.length - MOST_OUTPUT)
      put(shown(text), ink, hue, probability ?? 0, prompt.length + i);
  });
  if (next) put(nextWords(next), ink, null, 1, -1, 16);
  const first = Math.max(0, paints.length - MOST_LINES);
  for (const [i, all] of paints.slice(first).entries())
    for (const paint of all) paint(HEAD + i * LINE);
}

const nextWords = ({ step, after }: NonNullable<Tokens["next"]>) =>
  `next token at step ${step}${after && after > 0 ? `, ${duration(after)} later` : ""}`;

/**
 * The text of the selected request, if there is one.
 *
 * @param blocks its block table
 */
function tokenNodes(context: BoardContext, panel: Tokens | undefined, blocks: number[]) {
  const { model, frame, selected, block } = context;
  if (!panel) {
    return [
      h("h2", "Tokens"),
      h("p.note.muted", missing(model, "texts") || "Select a request to read its text."),
    ];
  }
  const { prompt, output, next, pending, vain } = panel;
  const head = h(
    "h2",
    chip(Number(selected), context),
    h("span.count.small.muted", summary(panel, model.requestSpan(Number(selected)))),
  );
  if (isSecret(model.requestSpan(Number(selected)).tokens)) {
    const isCut = model.info.tokenizer?.trace_text === "off";
    const words = isCut ? knowledgeWords.without_text : missing(model, "texts");
    return [head, h("p.note.muted", words)];
  }
  const text = h("div.text.scroll", {
    tabindex: "0",
    role: "group",
    "aria-label": "Prompt and output",
  });
  const words = h("div");
  text.append(words);
  const omit = (count: number) =>
    count > 0 && words.append(h("span.token.muted", `… ${count} before `));
  // The block that holds a token's KV, and whether it is the highlighted one.
  const place = (element: HTMLElement, index: number) => {
    const own = blocks[Math.floor(index / model.settings.block_size)];
    if (own != null) element.dataset.block = `${own}`;
    element.classList.toggle("in-block", own != null && own === block);
    words.append(element);
  };
  omit(prompt.length - MOST_PROMPT);
  const from = Math.max(0, prompt.length - MOST_PROMPT);
  prompt.slice(from).forEach((token, i) => place(promptToken(token), from + i));
  words.append(h("span.token.gap"));
  omit(output.length - MOST_OUTPUT);
  const start = Math.max(0, output.length - MOST_OUTPUT);
  const { vocab } = panel;
  output
    .slice(start)
    .forEach((token, i) => place(outputToken(token, vocab), prompt.length + start + i));
  for (const step of pending) words.append(placeholder(step));
  if (next) words.append(h("span.next", nextWords(next)));
  return [
    head,
    text,
    panel.guesses && draftLine(panel.checked),
    maskLine(panel, frame.step),
    vain !== null && inVain(vain),
  ].filter((node) => node !== false);
}

const FATES = {
  kept: "a draft, kept",
  refused: "a draft, refused; below it the model's own token",
  unused: "a draft after the last token: not used",
  open: "a draft",
};

/**
 * The drafts of the step above the model's tokens: it accepts drafts from the left; at the first that it rejects, or
 * after the last, comes a token of its own.
 */
function draftLine(checked: Tokens["checked"]) {
  if (!checked) return h("p.drafts.muted", "No drafts in this step.");
  const { drafts, kept, gained, own, names } = checked;
  const all = plural(drafts.length, "draft");
  const pair = (fate: string, title: string, ...both: (Node | string)[]) =>
    h("span", { class: `draft ${fate}`, title }, ...both.map((one) => h("span", one)));
  const mine = own == null ? "–" : h("ins", trimmed(own));
  const nodes = drafts.map(({ text, token, fate }) => {
    const written = text == null ? `token ${token}` : trimmed(text);
    const unsaid = text == null ? "; no request has this token, so the log has only its id" : "";
    const title = FATES[fate] + unsaid;
    if (fate === "kept") return pair(fate, title, written, `✓ ${written}`);
    if (fate === "refused") return pair(fate, title, h("del", written), mine);
    return pair(fate, title, written, "–");
  });
  if (own != null && kept === drafts.length)
    nodes.push(pair("own", "one more token, from the model", "–", mine));
  const line = gained
    ? `1 pass, ${plural(gained, "token")}: ${kept} of ${all} kept`
    : `${all}, not verified`;
  const heads = names.map((name) => h("span.cut", { title: name }, name));
  return h("div.drafts", h("strong", line), h("div.flow", h("span.names", ...heads), ...nodes));
}

function summary({ prompt, output, found, ttft, maxTokens }: Tokens, span: RequestSpan) {
  const adapter = adapterWords(span);
  const parts = [
    ...(adapter ? [adapter] : []),
    `${prompt.length} prompt tokens${found ? `, ${found} of them from the cache` : ""}`,
    `${output.length} of at most ${maxTokens} output tokens${ttft && ttft > 0 ? `, first after ${duration(ttft)}` : ""}`,
  ];
  const known = output.some(({ probability, text }) => probability != null && text);
  return `${parts.join("; ")}.${known ? " Underline: probability" : ""}`;
}

function promptToken({ text, cached }: Tokens["prompt"][number]) {
  return h("span.token.muted", shown(text), h("b", { class: cached ? "cached" : "computed" }));
}

function outputToken(
  { text, probability, forced, drafted, mask, step, at }: Tokens["output"][number],
  vocab: number | null,
) {
  const bar = h("b", { class: forced ? "forced" : "sampled" });
  bar.style.width = `${Math.round(100 * (forced ? 1 : (probability ?? 0)))}%`;
  const how = forced
    ? `forced by ${mask ? "the grammar" : "a tool"}`
    : probability == null
      ? ""
      : `probability ${Number(probability.toPrecision(3))}`;
  const when = `step ${step}${at && at > 0 ? `, ${duration(at)}` : ""}`;
  return h(
    "span",
    {
      class: mask?.wanted != null ? "token overruled" : "token",
      "data-step": step,
      title: [when, how, mask && !forced && maskWords(mask, vocab), drafted && FATES.kept]
        .filter(Boolean)
        .join("; "),
    },
    shown(text),
    bar,
  );
}

/** What the request's grammar left to choose from in the step. */
function maskLine({ output, vocab }: Tokens, step: number): HTMLElement | false {
  const chosen = output.filter((token) => token.step === step && token.mask);
  const [first] = chosen.filter(({ forced }) => !forced);
  if (!first?.mask) return false;
  const { mask } = first;
  const forced = chosen.filter((token) => token.forced).length;
  const share = h("span.share", { title: "the model's probability of all allowed tokens" });
  const rest = h("b.sampled");
  rest.style.width = `${100 * (mask.mass ?? 0)}%`;
  share.append(rest);
  return h(
    "p.mask",
    h("span.draft.kept", shown(first.text)),
    " ",
    maskWords(mask, vocab),
    share,
    forced ? `, then ${plural(forced, "token")} forced` : "",
  );
}

/** A token that a step is computing: the next steps are scheduled without knowing it. */
function placeholder(step: number) {
  const title = `a placeholder: step ${step} is computing this token`;
  return h("span.token.placeholder.muted", { title }, "?");
}

function inVain(step: number) {
  const words = `The request has ended, but step ${step} is still computing a row of it, in vain.`;
  return h("p.note.in-vain", words);
}

/** Strips the spaces around a text, unless it has only spaces. */
const trimmed = (text: string) => shown(text.trim() || text);

/** A newline as an arrow, an empty piece (part of a character) as a thin mark. */
function shown(text: string) {
  return text === "" ? "·" : text.replace(/\n/g, "⏎");
}
