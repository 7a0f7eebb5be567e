/** Sentences as HTML: a person's name carries the colour of the lane. */

import { h } from "../drawing/html.ts";
import type { Span } from "../model/words.ts";
import { type Run, YOU } from "./run.ts";

/** Writes spans; a person's name carries the colour of the lane. */
export function spell(element: HTMLElement, spans: Span[], run: Run) {
  const children = spans.map(({ text, bold, request }) => {
    const place =
      request === undefined ? -1 : run.model.request(request) ? run.placeOf(request) : request - 1;
    const name = bold || place >= 0 ? h("b", text) : text;
    return place < 0 || place > YOU ? name : h("span.who", h(`i.p${place}`), name);
  });
  const html = h("p", ...children).innerHTML;
  if (element.innerHTML !== html) element.replaceChildren(...children);
}
