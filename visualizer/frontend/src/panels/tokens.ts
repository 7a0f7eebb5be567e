/** The selected request's text: prompt and output, token by token; underlines show probabilities. */

import type { BoardContext, Panel } from "../board/board.ts";
import { Part } from "../board/part.ts";
import { patchChildren } from "../board/patch_children.ts";
import { closest, h, plural } from "../drawing/html.ts";
import { markOf } from "../drawing/marks.ts";
import { chip } from "../drawing/words_html.ts";
import { duration } from "../model/duration.ts";
import type { Frame } from "../model/frame.ts";
import { isSecret, knowledgeWords, missing } from "../model/knowledge.ts";
import { maskWords } from "../model/messages.ts";

/** of the selected request */
type Tokens = ReturnType<Frame["tokensOf"]>;

const MOST_PROMPT = 240;
const MOST_OUTPUT = 400;

export class TokensPanel extends Part {
  reads: Panel["reads"] = ["selected", "block"];
  /** What the panel shows. */
  written = "";
  shown: number | null = null;
  element = h("section.tokens", { "aria-label": "Tokens", click: (event) => this.clicked(event) });

  write() {
    const { board } = this;
    const context = board.context();
    const { model, frame, theme, selected, block } = context;
    const span = model.request(selected);
    const panel = span && frame.tokensOf(span.id);
    const blocks = span && frame.table(span.id).blocks;
    // A finished request, or one that has not arrived, has the same text at every step.
    const written = JSON.stringify([selected, block, theme, blocks, panel]);
    if (written === this.written) return;
    this.written = written;
    patchChildren(this.element, tokenNodes(context, panel, blocks ?? []));
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
    h("span.count.small.muted", summary(panel)),
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
  if (next)
    words.append(
      h(
        "span.next",
        `next token at step ${next.step}${next.after && next.after > 0 ? `, ${duration(next.after)} later` : ""}`,
      ),
    );
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

function summary({ prompt, output, found, ttft, maxTokens }: Tokens) {
  const parts = [
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
