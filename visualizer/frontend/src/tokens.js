/** The selected request's text: prompt, then output, token by token, with probability as underline. */

import { h } from "./html.js";
import { milliseconds } from "./tell.js";
import { chip } from "./words_html.js";

const MOST_PROMPT = 240;
const MOST_OUTPUT = 400;

/** Nodes of the tokens panel. `context` has model, frame, theme, selected. */
export function tokenNodes(context) {
  const { model, frame, selected } = context;
  if (selected == null || !model.request(selected)) {
    return [h("h2", {}, "Tokens"), h("p", { class: "note muted" }, "Select a request to read it.")];
  }
  const panel = frame.tokensOf(selected);
  const { prompt, output, next } = panel;
  const text = h("div", { class: "text" });
  const omit = (count) =>
    count > 0 && text.append(h("span", { class: "token muted" }, `… ${count} before `));
  omit(prompt.length - MOST_PROMPT);
  for (const token of prompt.slice(-MOST_PROMPT)) text.append(promptToken(token));
  text.append(h("span", { class: "token gap" }));
  omit(output.length - MOST_OUTPUT);
  for (const token of output.slice(-MOST_OUTPUT)) text.append(outputToken(token));
  if (next)
    text.append(
      h(
        "span",
        { class: "next" },
        `next token at step ${next.step}${next.after > 0 ? `, ${milliseconds(next.after)} later` : ""}`,
      ),
    );
  return [
    h("h2", {}, chip(selected, context), h("span", { class: "count" }, summary(panel))),
    text,
  ];
}

function summary({ prompt, output, found, ttft, maxTokens }) {
  const parts = [
    `${prompt.length} prompt tokens${found ? `, ${found} of them from the cache` : ""}`,
    `${output.length} of at most ${maxTokens} tokens out${ttft > 0 ? `, first after ${milliseconds(ttft)}` : ""}`,
  ];
  const known = output.some(({ probability }) => probability != null);
  return `${parts.join("; ")}.${known ? " Underline: probability" : ""}`;
}

function promptToken({ text, cached }) {
  return h(
    "span",
    { class: "token muted" },
    shown(text),
    h("b", { class: cached ? "cached" : "computed" }),
  );
}

function outputToken({ text, probability, forced, step, at }) {
  const bar = h("b", { class: forced ? "forced" : "sampled" });
  bar.style.width = `${Math.round(100 * (forced ? 1 : (probability ?? 0)))}%`;
  const how = forced
    ? "forced by a tool"
    : probability == null
      ? ""
      : `probability ${Number(probability.toPrecision(3))}`;
  const when = `step ${step}${at > 0 ? `, ${milliseconds(at)}` : ""}`;
  return h(
    "span",
    { class: "token", title: [when, how].filter(Boolean).join("; ") },
    shown(text),
    bar,
  );
}

/** A newline as an arrow; an empty piece (half a character) as a thin mark. */
function shown(text) {
  return text === "" ? "·" : text.replace(/\n/g, "⏎");
}
