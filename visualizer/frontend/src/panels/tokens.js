/**
 * The selected request's text: prompt and output, token by token; underlines show probabilities.
 *
 * @typedef {ReturnType<Frame["tokensOf"]>} Tokens  of the selected request
 */

/** @import { Board, BoardContext } from "../board/board.js" */
/** @import { Frame } from "../model/frame.js" */
import { patchChildren } from "../board/patch_children.js";
import { closest, h, plural } from "../drawing/html.js";
import { markOf } from "../drawing/marks.js";
import { chip } from "../drawing/words_html.js";
import { duration } from "../model/duration.js";

const MOST_PROMPT = 240;
const MOST_OUTPUT = 400;

export class TokensPanel {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.written = ""; // what the panel shows
    /** @type {number | null} */
    this.shown = null;
    this.element = h("section", { class: "tokens", "aria-label": "Tokens" });
    this.element.addEventListener("click", (event) => this.clicked(event), {
      signal: board.signal,
    });
  }

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

  /**
   * Goes to the step that computed an output token, or highlights the block of a prompt token.
   *
   * @param {Event} event
   */
  clicked(event) {
    const { step, block } = closest(event, ".token")?.dataset ?? {};
    if (step) this.board.goTo(Number(step));
    else if (block) this.board.lookAt(Number(block));
  }
}

/** The text of the selected request, if there is one.
 * @param {BoardContext} context @param {Tokens | undefined} panel @param {number[]} blocks  its block table */
function tokenNodes(context, panel, blocks) {
  const { model, selected, block } = context;
  if (!panel) {
    return [
      h("h2", {}, "Tokens"),
      h("p", { class: "note muted" }, "Select a request to read its text."),
    ];
  }
  const { prompt, output, next, pending, vain } = panel;
  const text = h("div", {
    class: "text scroll",
    tabindex: "0",
    role: "group",
    "aria-label": "Prompt and output",
  });
  const words = h("div", {});
  text.append(words);
  /** @param {number} count */
  const omit = (count) =>
    count > 0 && words.append(h("span", { class: "token muted" }, `… ${count} before `));
  // The block that holds a token's KV, and whether it is the highlighted one.
  /** @param {HTMLElement} element @param {number} index */
  const place = (element, index) => {
    const own = blocks[Math.floor(index / model.settings.block_size)];
    if (own != null) element.dataset.block = `${own}`;
    element.classList.toggle("in-block", own != null && own === block);
    words.append(element);
  };
  omit(prompt.length - MOST_PROMPT);
  const from = Math.max(0, prompt.length - MOST_PROMPT);
  prompt.slice(from).forEach((token, i) => place(promptToken(token), from + i));
  words.append(h("span", { class: "token gap" }));
  omit(output.length - MOST_OUTPUT);
  const start = Math.max(0, output.length - MOST_OUTPUT);
  output.slice(start).forEach((token, i) => place(outputToken(token), prompt.length + start + i));
  for (const step of pending) words.append(placeholder(step));
  if (next)
    words.append(
      h(
        "span",
        { class: "next" },
        `next token at step ${next.step}${next.after && next.after > 0 ? `, ${duration(next.after)} later` : ""}`,
      ),
    );
  return [
    h("h2", {}, chip(Number(selected), context), h("span", { class: "count" }, summary(panel))),
    text,
    panel.guesses && draftLine(panel.checked),
    vain !== null && inVain(vain),
  ].filter((node) => node !== false);
}

const FATES = {
  kept: "a draft, kept",
  refused: "a draft, refused",
  unused: "a draft after the last token: not used",
  open: "a draft",
};

/**
 * The drafts of the step: accepted ones ticked, the rejected one struck out, then the model's own token.
 *
 * @param {Tokens["checked"]} checked
 */
function draftLine(checked) {
  if (!checked) return h("p", { class: "drafts muted" }, "No drafts in this step.");
  const { drafts, kept, gained, own } = checked;
  const all = plural(drafts.length, "draft");
  const nodes = drafts.map(({ text, token, fate }) => {
    const written = text == null ? ` token ${token}` : shown(text);
    const word =
      fate === "refused"
        ? h("del", {}, ` ${written.trimStart()} `)
        : `${fate === "kept" ? "✓" : ""}${written}`;
    const unsaid = text == null ? "; no request has this token, so the log has only its id" : "";
    return h("span", { class: `draft ${fate}`, title: FATES[fate] + unsaid }, word);
  });
  const title =
    kept < drafts.length ? "the model's own token instead" : "one more token, from the model";
  const sign = kept < drafts.length ? "→" : "+";
  if (own != null)
    nodes.splice(
      kept + 1,
      0,
      h("span", { class: "draft own", title }, h("ins", {}, sign + shown(own))),
    );
  const line = gained
    ? `1 pass, ${plural(gained, "token")}: ${kept} of ${all} kept`
    : `${all}, not verified`;
  return h("p", { class: "drafts" }, h("strong", {}, line), ...nodes);
}

/** @param {Tokens} tokens */
function summary({ prompt, output, found, ttft, maxTokens }) {
  const parts = [
    `${prompt.length} prompt tokens${found ? `, ${found} of them from the cache` : ""}`,
    `${output.length} of at most ${maxTokens} output tokens${ttft && ttft > 0 ? `, first after ${duration(ttft)}` : ""}`,
  ];
  const known = output.some(({ probability }) => probability != null);
  return `${parts.join("; ")}.${known ? " Underline: probability" : ""}`;
}

/** @param {Tokens["prompt"][number]} token */
function promptToken({ text, cached }) {
  return h(
    "span",
    { class: "token muted" },
    shown(text),
    h("b", { class: cached ? "cached" : "computed" }),
  );
}

/** @param {Tokens["output"][number]} token */
function outputToken({ text, probability, forced, drafted, step, at }) {
  const bar = h("b", { class: forced ? "forced" : "sampled" });
  bar.style.width = `${Math.round(100 * (forced ? 1 : (probability ?? 0)))}%`;
  const how = forced
    ? "forced by a tool"
    : probability == null
      ? ""
      : `probability ${Number(probability.toPrecision(3))}`;
  const when = `step ${step}${at && at > 0 ? `, ${duration(at)}` : ""}`;
  return h(
    "span",
    {
      class: "token",
      "data-step": step,
      title: [when, how, drafted && FATES.kept].filter(Boolean).join("; "),
    },
    shown(text),
    bar,
  );
}

/** A token that a step is computing: the next steps are scheduled without knowing it. @param {number} step */
function placeholder(step) {
  const title = `a placeholder: step ${step} is computing this token`;
  return h("span", { class: "token placeholder", title }, "?");
}

/** @param {number} step */
function inVain(step) {
  const words = `The request has ended, but step ${step} is still computing a row of it, in vain.`;
  return h("p", { class: "note in-vain" }, words);
}

/** A newline as an arrow, an empty piece (part of a character) as a thin mark. @param {string} text */
function shown(text) {
  return text === "" ? "·" : text.replace(/\n/g, "⏎");
}
