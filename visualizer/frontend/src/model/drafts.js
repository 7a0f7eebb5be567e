/** What became of the drafts of one request in a step. */

/**
 * From the left, as far as they are what the model says itself, drafts are kept. What it says behind them is a
 * token of its own: in the place of the first that is refused, or one more where all were right. There
 * is none where a kept draft ended the output, or called a tool.
 *
 * @param {import("./frame.js").Frame} frame
 * @param {number} id
 * @returns {{drafts: {text: string | null, token: number, fate: "kept" | "refused" | "unused" | "open"}[],
 *   kept: number, gained: number, own: string | null} | null}
 *   gained: tokens, kept drafts and the model's own; own: its text; open: the log has no answer.
 *   text: null where the log nowhere says how the token is spelled. null: it had no drafts
 */
export function draftsOf({ model, step, story }, id) {
  const row = story.rows.find((one) => one.request === id);
  if (!row?.drafts.length) return null;
  const gain = story.gains.find((one) => one.request === id);
  const span = model.requestSpan(id);
  const kept = gain?.accepted ?? 0;
  const gained = gain ? gain.ids.length - gain.forced : 0;
  const first = span.promptLength + span.tokenSteps.indexOf(step);
  /** @returns {"kept" | "refused" | "unused" | "open"} */
  const fate = (/** @type {number} */ place) => {
    if (!gain) return "open";
    if (place < kept) return "kept";
    return place === kept && gained > kept ? "refused" : "unused";
  };
  const drafts = row.drafts.map((token, place) => {
    const text = place < kept ? span.texts[first + place] : spelling(model, span, token);
    return { text, token, fate: fate(place) };
  });
  return { drafts, kept, gained, own: gained > kept ? span.texts[first + kept] : null };
}

/** The log has texts of tokens that were said or asked, and ids alone of drafts: so it is looked up. */
function spelling(
  /** @type {import("./model.js").Model} */ model,
  /** @type {import("./request_spans.js").RequestSpan} */ span,
  /** @type {number} */ token,
) {
  for (const { tokens, texts } of [span, ...model.requests]) {
    let at = tokens.indexOf(token);
    // An empty piece is a part of a character, which the next piece has.
    while (at >= 0 && texts[at] === "") at = tokens.indexOf(token, at + 1);
    if (at >= 0) return texts[at];
  }
  return null;
}
