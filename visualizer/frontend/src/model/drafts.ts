/** The fate of one request's drafts in a step. */

import type { Frame } from "./frame.ts";
import type { Model } from "./model.ts";
import type { RequestSpan } from "./request_spans.ts";

type Fate = "kept" | "refused" | "unused" | "open";

/**
 * Drafts are accepted from the left as long as they equal the model's own tokens. The model's next token follows:
 * it replaces the first rejected draft, or it is one more if all were accepted. There is none if an accepted draft
 * ended the output or called a tool.
 *
 * @returns gained: tokens, kept drafts and the model's own; own: its text; open: the log does not have the result.
 *   names: of the drafter and of the model
 *   text: null if the log does not have the token's text. Returns null if the request had no drafts
 */
export function draftsOf({ model, step, story }: Frame, id: number) {
  const row = story.rows.find((one) => one.request === id);
  if (!row?.drafts.length) return null;
  const gain = story.gains.find((one) => one.request === id);
  const span = model.requestSpan(id);
  const kept = gain?.accepted ?? 0;
  const gained = gain ? gain.ids.length - gain.forced : 0;
  const first = span.promptLength + span.tokenSteps.indexOf(step);
  const fate = (place: number): Fate => {
    if (!gain) return "open";
    if (place < kept) return "kept";
    return place === kept && gained > kept ? "refused" : "unused";
  };
  const drafts = row.drafts.map((token, place) => {
    const known =
      place < kept
        ? span.texts[first + place]
        : (gain?.rejected[place - kept] ?? spelling(model, span, token));
    const text = token < 0 ? "?" : known; // an unknown token
    return { text, token, fate: fate(place) };
  });
  const { draft_model, name, parameters } = model.info.model ?? {};
  const names = [
    draft_model?.name || model.classes.drafter || "drafts",
    (parameters && name) || "model",
  ];
  return { drafts, kept, gained, own: gained > kept ? span.texts[first + kept] : null, names };
}

/** The text of a draft of which the log has only the id: look for the same token in prompts and outputs. */
function spelling(model: Model, span: RequestSpan, token: number) {
  for (const { tokens, texts } of [span, ...model.requests]) {
    let at = tokens.indexOf(token);
    // An empty piece is part of a character that the next piece contains.
    while (at >= 0 && texts[at] === "") at = tokens.indexOf(token, at + 1);
    if (at >= 0) return texts[at];
  }
  return null;
}
