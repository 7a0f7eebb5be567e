/** Spans of words as HTML: a request's name becomes a button with its swatch that selects it. */

import { h } from "./html.js";
import { swatchOf } from "./marks.js";

/** The nodes of spans. `context` has model, theme, selected and perhaps frame; the board handles clicks. */
export function wordNodes(spans, context) {
  const nodes = [];
  let after = ""; // the part of the next span that stays with a name
  spans.forEach((span, i) => {
    const text = span.text.slice(after.length);
    after = "";
    if (span.request == null) {
      nodes.push(span.bold ? h("strong", {}, text) : text);
      return;
    }
    // A comma, a full stop or an "'s" stays on the line of its name.
    const next = spans[i + 1];
    if (next && next.request == null) [after] = /^\S*/.exec(next.text);
    const tail = after && next.bold ? h("strong", {}, after) : after;
    nodes.push(h("span", { class: "together" }, chip(span.request, context, text), tail));
  });
  return nodes;
}

/** A request's name with its swatch: hollow before the request is admitted, if the context has a frame. */
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
