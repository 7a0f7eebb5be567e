/**
 * Spans of words as HTML: a request's name becomes a button with its swatch that selects it.
 *
 * @typedef {object} WordContext
 * @property {Pick<Model, "request" | "laneOf">} model
 * @property {Theme} theme
 * @property {number | null} selected
 * @property {{step: number}} [frame]  at its step, a request that is not admitted yet has a hollow swatch
 */

/** @import { Knowledge } from "../model/knowledge.js" */
/** @import { Model } from "../model/model.js" */
/** @import { Span } from "../model/words.js" */
/** @import { Theme } from "./palette.js" */
import { HALF_DOT } from "../model/knowledge.js";
import { h } from "./html.js";
import { swatchOf } from "./marks.js";

/** The nodes of spans; the board handles clicks. @param {Span[]} spans @param {WordContext} context */
export function wordNodes(spans, context) {
  /** @type {(string | HTMLElement)[]} */
  const nodes = [];
  let after = ""; // the part of the next span that stays with a name
  spans.forEach((span, i) => {
    const text = span.text.slice(after.length);
    after = "";
    if (span.request == null) {
      for (const part of halved(text)) nodes.push(span.bold ? h("strong", {}, part) : part);
      return;
    }
    // A comma, a full stop or an "'s" stays on the line of its name.
    const next = spans[i + 1];
    if (next && next.request == null)
      [after] = /** @type {RegExpExecArray} */ (/^\S*/.exec(next.text));
    const tail = after && next?.bold ? h("strong", {}, after) : after;
    nodes.push(h("span", { class: "together" }, chip(span.request, context, text), tail));
  });
  return nodes;
}

/**
 * A text with its half dots, which mark inferred statements, as elements.
 *
 * @param {string} text
 */
export function halved(text) {
  return text
    .split(HALF_DOT)
    .flatMap((part, i) => (i ? [levelDot("inferred"), part] : part ? [part] : []));
}

/** The sign of how a fact is known. @param {Knowledge} level */
export const levelDot = (level) =>
  h("span", { class: `level ${level}`, role: "img", "aria-label": level, title: level });

/**
 * A request's name with its swatch: hollow before the request is admitted, if the context has a frame.
 *
 * @param {number} id @param {WordContext} context @param {string} [text]
 */
export function chip(id, { model, frame, theme, selected }, text) {
  const span = model.request(id);
  const swatch = h("i", {
    "aria-hidden": "true",
    ...swatchOf(theme, model.laneOf(id, frame?.step)),
  });
  return h(
    "button",
    {
      type: "button",
      class: "chip",
      "data-request": id,
      "aria-pressed": String(id === selected),
    },
    swatch,
    text ?? span?.name ?? `r${id}`,
  );
}
