/** One request's tokens as of a step: the prompt with its cached part, the output with times and probabilities. */

import type { Frame } from "./frame.ts";
import { lacks } from "./knowledge.ts";
import type { Model } from "./model.ts";
import type { RequestSpan } from "./request_spans.ts";

export function tokensPanel(frame: Frame, id: number) {
  const { model, step, state } = frame;
  const span = model.requestSpan(id);
  const { promptLength, texts, tokenSteps, arrivedAt, maxTokens } = span;
  const admission = span.admissions.findLast((one) => one.step <= step);
  const found = admission ? Math.min(admission.found, promptLength) : 0;
  // Where only the ids are known, they stand in for the text.
  const written = lacks(model, "texts")
    ? (at: number) => (span.tokens[at] < 0 ? "" : ` ${span.tokens[at]}`)
    : (at: number) => texts[at];
  const prompt = texts
    .slice(0, promptLength)
    .map((_, index) => ({ text: written(index), cached: index < found }));
  const live = state.requests.get(id);
  const shown = live ? live.length - promptLength : tokenSteps.filter((at) => at <= step).length;
  const drafted = new Set(span.drafted);
  const forced = new Set(span.forced);
  const output = [];
  for (let index = 0; index < shown; index++) {
    const at = tokenSteps[index];
    const logprob = span.logprobs[index];
    output.push({
      text: written(promptLength + index),
      probability:
        logprob === undefined || lacks(model, "probabilities") ? null : Math.exp(logprob),
      step: at,
      at: endOf(model, at),
      forced: forced.has(index),
      drafted: drafted.has(index),
      mask: span.masks[index] ?? null,
    });
  }
  const first = endOf(model, tokenSteps[0]);
  const last = output[shown - 1]?.at ?? null;
  const next = tokenSteps[shown];
  return {
    prompt,
    output,
    found,
    ttft: shown ? elapsed(arrivedAt, first) : null,
    next: next === undefined ? null : { step: next, after: elapsed(last, endOf(model, next)) },
    checked: draftsOf(frame, id),
    guesses: span.segments.some(({ drafts }) => drafts),
    ...inFlight(frame, id),
    vocab: model.info.tokenizer?.vocab_size ?? null,
    total: tokenSteps.length,
    maxTokens,
  };
}

/**
 * Asynchronous scheduling: the steps that are being computed. `pending` will give the request a token that is not
 * known yet; `vain` is computed in vain, because the request has ended.
 */
function inFlight(
  { state, status }: Frame,
  id: number,
): { pending: number[]; vain: number | null } {
  const request = state.requests.get(id);
  const isAsync = state.settings.async_scheduling && status !== "pending";
  const rows = [...(isAsync ? state.plans : [])].flatMap(([step, planned]) =>
    planned
      .filter(([owner]) => owner === id)
      .map(([, start, count, drafts]) => ({ step, end: start + count - drafts.length })),
  );
  if (!request) return { pending: [], vain: rows[0]?.step ?? null };
  const last = rows.filter(({ end }) => end >= request.length);
  return { pending: last.map(({ step }) => step), vain: null };
}

/** Microseconds between two times, or null if one of them is unknown. */
function elapsed(from: number | null, to: number | null) {
  return from === null || to === null ? null : to - from;
}

/**
 * The end of a step, or null if the log does not have it.
 *
 * @param step 0: before the log begins
 */
function endOf({ measures, firstStep }: Model, step: number | undefined) {
  const end = step ? measures.end.at(step - firstStep) : NaN;
  return Number.isNaN(end) ? null : end;
}

/** of a draft */
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
