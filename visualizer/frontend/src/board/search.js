/**
 * What "/" finds: a step, a block, a request by its label or number, kinds of events, and text of
 * prompts and outputs. Pure.
 *
 * @typedef {object} Found
 * @property {string} kind
 * @property {string} text      of the log, or words
 * @property {number} step      where to go
 * @property {number} [request]
 * @property {number} [block]
 */

const AROUND = 24; // characters shown on either side of a text that was found
const PER_REQUEST = 3;

/** Kinds of events, each with the steps and requests it happened to. */
const HAPPENINGS = {
  arrived: (life) => (life.arrived == null ? [] : [life.arrived]),
  admitted: (life) => life.admissions.map(({ step }) => step),
  hit: (life) => life.admissions.filter(({ found }) => found).map(({ step }) => step),
  preempted: (life) => life.preemptions.map(({ step }) => step),
  resumed: (life) => life.admissions.filter(({ resumed }) => resumed).map(({ step }) => step),
  forked: (life) => (life.forked ? [life.forked.step] : []),
  finished: (life) => (life.finished ? [life.finished.step] : []),
  aborted: (life, model) =>
    life.finished?.reason === "abort" ? [model.stepOf(life.finished.seq)] : [], // which tells of it
  error: (life) => (life.finished?.reason === "error" ? [life.finished.step] : []),
};

/**
 * Finds one after the other, or null after every request that had nothing, so that the caller can stop,
 * or let the page breathe, at any time.
 *
 * @returns {Generator<Found | null>}
 */
export function* find(model, query, cursor) {
  const wanted = query.trim().toLowerCase();
  if (!wanted) return;
  yield* numbered(model, wanted, cursor);
  if ("evicted".startsWith(wanted) && wanted.length > 2) yield* evictions(model);
  const kind = Object.keys(HAPPENINGS).find((name) => wanted.length > 2 && name.startsWith(wanted));
  if (kind) yield* happenings(model, kind);
  for (const life of model.requests) {
    const names = [life.name, life.short, life.label ?? ""].map((name) => name.toLowerCase());
    const named = names[0] === wanted || names[1] === wanted;
    if (named || (wanted.length > 1 && names.some((name) => name.includes(wanted))))
      yield { kind: "request", text: life.label || life.short, ...first(model, life) };
  }
  for (const life of model.requests) {
    let any = false;
    for (const found of texts(model, life, wanted)) {
      any = true;
      yield found;
    }
    if (!any) yield null;
  }
}

function* numbered(model, wanted, cursor) {
  const [, what = "", digits] = /^(step|block)?\s*(\d+)$/.exec(wanted) ?? [];
  if (!digits) return;
  const number = Number(digits);
  if (what !== "block" && number >= model.firstStep && number <= model.lastStep)
    yield { kind: "step", text: `step ${number}`, step: number };
  if (what !== "step" && number < model.settings.num_blocks)
    yield { kind: "block", text: `block ${number}`, step: cursor, block: number };
  const life = what ? null : model.request(number);
  if (life) yield { kind: "request", text: life.label || life.short, ...first(model, life) };
}

function* evictions(model) {
  const { evicted } = model.measures;
  for (let i = 0; i < evicted.length; i += 1) {
    const text = `${evicted[i]} block${evicted[i] === 1 ? "" : "s"} evicted`;
    if (evicted[i]) yield { kind: "evicted", text, step: model.firstStep + i };
  }
}

function* happenings(model, kind) {
  const all = model.requests.flatMap((life) =>
    HAPPENINGS[kind](life, model).map((step) => ({ kind, text: kind, step, request: life.id })),
  );
  yield* all.filter(({ step }) => step >= model.firstStep).sort((a, b) => a.step - b.step);
}

/** Text in the prompt or the output: the step that brought the token in which it begins. */
function* texts(model, life, wanted) {
  const whole = life.texts.join("");
  const lower = whole.toLowerCase();
  let at = lower.indexOf(wanted);
  for (let n = 0; at >= 0 && n < PER_REQUEST; n += 1) {
    const index = tokenAt(life.texts, at);
    const isOutput = index >= life.promptLength;
    const step = isOutput ? life.tokenSteps[index - life.promptLength] : first(model, life).step;
    const end = at + wanted.length;
    const [from, to] = [Math.max(0, at - AROUND), end + AROUND];
    const text = `${from ? "…" : ""}${whole.slice(from, to)}${to < whole.length ? "…" : ""}`;
    const kind = isOutput ? "output" : "prompt";
    yield { kind, text, step: Math.max(step, model.firstStep), request: life.id };
    at = lower.indexOf(wanted, end);
  }
}

function tokenAt(pieces, offset) {
  let seen = 0;
  return pieces.findIndex((piece) => (seen += piece.length) > offset);
}

const first = (model, life) => ({
  step: Math.max(life.admissions[0]?.step ?? life.arrived ?? model.firstStep, model.firstStep),
  request: life.id,
});
