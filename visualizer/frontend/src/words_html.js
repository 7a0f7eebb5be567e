/** Spans of words as HTML: a request's name becomes a button with its swatch that selects it. */

import { h } from "./html.js";
import { swatchBackground } from "./palette.js";

/** Makes the nodes. `context` has model, theme and selected; `root` listens for the clicks. */
export function wordNodes(spans, context) {
  return spans.map((span) => {
    if (span.request != null) return chip(span.request, context, span.text);
    return span.bold ? h("strong", {}, span.text) : document.createTextNode(span.text);
  });
}

/** A request's name with its swatch. */
export function chip(id, { model, theme, selected }, text) {
  const life = model.request(id);
  const swatch = h("i", { "aria-hidden": "true" });
  swatch.style.background = swatchBackground(theme, life?.hueIndex ?? 0);
  return h(
    "button",
    { type: "button", class: "chip", "data-request": id, "aria-pressed": String(id === selected) },
    swatch,
    text ?? life?.name ?? `r${id}`,
  );
}
