/** One request's tokens as of a step: the prompt with its cached part, the output with times and odds. */

/**
 * @param {import("./frame.js").Frame} frame
 * @param {number} id
 */
export function tokensPanel({ model, step, state }, id) {
  const life = model.request(id);
  const { promptLength, texts, tokenSteps, arrivedAt, maxTokens } = life;
  const admission = life.admissions.findLast((one) => one.step <= step);
  const found = admission ? Math.min(admission.found, promptLength) : 0;
  const prompt = texts
    .slice(0, promptLength)
    .map((text, index) => ({ text, cached: index < found }));
  const live = state.requests.get(id);
  const shown = live ? live.length - promptLength : tokenSteps.filter((at) => at <= step).length;
  const output = [];
  for (let index = 0, nth = 0; index < shown; index++) {
    const at = tokenSteps[index];
    nth = at === tokenSteps[index - 1] ? nth + 1 : 0; // which of the step's tokens for this request
    const row = gained(model, life, at);
    const logprob = row?.logprobs?.[nth];
    const forced = row ? nth >= row.ids - row.forced : false;
    output.push({
      text: texts[promptLength + index],
      probability: logprob === undefined || forced ? null : Math.exp(logprob),
      step: at,
      at: row?.end ?? null,
      forced,
      drafted: row ? nth < row.accepted : false,
    });
  }
  const first = gained(model, life, tokenSteps[0])?.end;
  const last = output.at(-1)?.at;
  const next = tokenSteps[shown];
  const end = gained(model, life, next)?.end;
  return {
    prompt,
    output,
    found,
    ttft: shown && first !== undefined && arrivedAt !== null ? first - arrivedAt : null,
    next: next === undefined ? null : { step: next, after: elapsed(last, end) },
    total: tokenSteps.length,
    maxTokens,
  };
}

/** Microseconds between two times of which either may be unknown. */
function elapsed(
  /** @type {number | null | undefined} */ from,
  /** @type {number | undefined} */ to,
) {
  return from === null || from === undefined || to === undefined ? null : to - from;
}

/**
 * What one request gained, by step: the panel asks for all of it again in every step, and each answer is
 * a line of the log. @type {WeakMap<import("./model.js").Model, {id: number, steps: Map<number, any>}>}
 */
const latest = new WeakMap();

/**
 * What a request gained in a step, null where the log does not say.
 *
 * @param {import("./model.js").Model} model
 * @param {import("./lives.js").Life} life
 * @param {number | undefined} step
 */
function gained(model, { id }, step) {
  if (!step) return null;
  const { done } = model.span(step);
  if (done === null) return null;
  if (latest.get(model)?.id !== id) latest.set(model, { id, steps: new Map() });
  const { steps } = latest.get(model);
  if (!steps.has(step)) steps.set(step, gainOf(model.event(done), id));
  return steps.get(step);
}

/** @param {any} finished  a step_finished event @param {number} request */
function gainOf({ tokens, t = {} }, request) {
  const index = tokens.findIndex((/** @type {any} */ [id]) => id === request);
  if (index < 0) return null;
  const [, ids, , accepted = 0, forced = 0] = tokens[index];
  return { ids: ids.length, accepted, forced, logprobs: t.logprobs?.[index], end: t.end };
}
