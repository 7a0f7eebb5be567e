/** Spans of words as HTML: a request's name becomes a button with its swatch that selects it. */

import { type Description, v } from "../board/patch_children.ts";
import { HALF_DOT, type Knowledge } from "../model/knowledge.ts";
import type { Model } from "../model/model.ts";
import type { Span } from "../model/words.ts";
import { swatchOf } from "./marks.ts";
import type { Theme } from "./palette.ts";
import { type Term, withTerms } from "./terms.ts";

export interface WordContext {
  model: {
    request: (id: number) => { name: string } | undefined;
    laneOf: (id: number | null, step?: number) => number | null;
  };
  theme: Theme;
  selected: number | null;
  frame?: { step: number }; // at its step, a request that is not admitted yet has a hollow swatch
}

/** Spans for `patchChildren` or `h`; the board handles clicks. With `terms`, their words explain themselves. */
export function wordNodes(spans: Span[], context: WordContext, terms?: Set<Term>) {
  const nodes: (string | Description)[] = [];
  let after = ""; // the part of the next span that stays with a name
  spans.forEach((span, i) => {
    const text = span.text.slice(after.length);
    after = "";
    if (span.request == null) {
      for (const part of halved(text)) {
        const words = terms && typeof part === "string" ? withTerms(part, terms) : [part];
        if (span.bold) nodes.push(v("strong", ...words));
        else nodes.push(...words);
      }
      return;
    }
    // A comma, a full stop or an "'s" stays on the line of its name.
    const next = spans[i + 1];
    if (next && next.request == null) [after] = /^\S*/.exec(next.text) as RegExpExecArray;
    const tail = after && next?.bold ? v("strong", after) : after;
    nodes.push(v("span.together", chip(span.request, context, text), tail));
  });
  return nodes;
}

/** A text with its half dots, which mark inferred statements, as elements. */
export function halved(text: string) {
  return text
    .split(HALF_DOT)
    .flatMap((part, i) => (i ? [levelDot("inferred"), part] : part ? [part] : []));
}

/** The sign of how a fact is known. */
export const levelDot = (level: Knowledge) =>
  v("span", { class: `level ${level}`, role: "img", "aria-label": level, title: level });

/** A request's name with its swatch: hollow before the request is admitted, if the context has a frame. */
export function chip(id: number, { model, frame, theme, selected }: WordContext, text?: string) {
  const span = model.request(id);
  const swatch = v("i", {
    "aria-hidden": "true",
    ...swatchOf(theme, model.laneOf(id, frame?.step)),
  });
  return v(
    "button.chip",
    { "data-request": id, "aria-pressed": String(id === selected) },
    swatch,
    text ?? span?.name ?? `r${id}`,
  );
}

/** The kernel's words (strings, and requests as numbers) as spans for `wordNodes`. */
export function spansOf(words: (string | number)[], model: Pick<Model, "request"> | null): Span[] {
  return words.map((word) =>
    typeof word === "string"
      ? { text: word }
      : { text: model?.request(word)?.name ?? `r${word}`, request: word },
  );
}
