/** One request's tokens as of a step: the prompt with its cached part, the output with times and probabilities. */

import { draftsOf } from "./drafts.ts";
import type { Frame } from "./frame.ts";
import { lacks } from "./knowledge.ts";
import type { Model } from "./model.ts";

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
  const end = step ? measures.end[step - firstStep] : NaN;
  return Number.isNaN(end) ? null : end;
}
