/**
 * Search: finds a step, a block, a request by its label or number, kinds of events, answers to questions, and text
 * of prompts and outputs. Pure functions.
 */

import { adapterOf } from "../model/adapters.ts";
import type { Model } from "../model/model.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import type { Slo } from "../model/run_summary.ts";
import type { PanelName } from "./board.ts";
import { ask } from "./questions.ts";

export interface Found {
  kind: string;
  text: string; // from the log, or a description
  step: number; // where to go
  request?: number;
  block?: number;
  only?: PanelName; // the panel that shows it
}

const AROUND = 24; // characters shown on either side of a match
const PER_REQUEST = 3;

/** Kinds of events, each with the steps in which it happened to a request. */
const HAPPENINGS: Record<string, (span: RequestSpan, model: Model) => number[]> = {
  arrived: (span) => (span.arrived == null ? [] : [span.arrived]),
  admitted: (span) => span.admissions.map(({ step }) => step),
  hit: (span) => span.admissions.filter(({ found }) => found).map(({ step }) => step),
  preempted: (span) => span.preemptions.map(({ step }) => step),
  resumed: (span) => span.admissions.filter(({ resumed }) => resumed).map(({ step }) => step),
  forked: (span) => (span.forked ? [span.forked.step] : []),
  finished: (span) => (span.finished ? [span.finished.step] : []),
  aborted: (span, model) =>
    span.finished?.reason === "abort" ? [model.stepOf(span.finished.seq)] : [], // the step that shows it
  error: (span) => (span.finished?.reason === "error" ? [span.finished.step] : []),
};

/**
 * Yields one result after the other, and null after every request without one, so that the caller can stop
 * or yield to the page at any time.
 */
export function* find(
  model: Model,
  query: string,
  cursor: number,
  slo: Slo,
): Generator<Found | null> {
  const wanted = query.trim().toLowerCase();
  if (!wanted) return;
  yield* numbered(model, wanted, cursor);
  if ("evicted".startsWith(wanted) && wanted.length > 2) yield* evictions(model);
  const kind = Object.keys(HAPPENINGS).find((name) => wanted.length > 2 && name.startsWith(wanted));
  if (kind) yield* happenings(model, kind);
  else yield* ask(model, query, slo);
  for (const span of model.requests) {
    const known = [span.name, span.short, span.label ?? "", adapterOf(span)];
    const names = known.map((name) => name.toLowerCase());
    const named = names[0] === wanted || names[1] === wanted;
    if (named || (wanted.length > 1 && names.some((name) => name.includes(wanted))))
      yield { kind: "request", text: span.label || span.short, ...first(model, span) };
  }
  for (const span of model.requests) {
    let any = false;
    for (const found of texts(model, span, wanted)) {
      any = true;
      yield found;
    }
    if (!any) yield null;
  }
}

function* numbered(model: Model, wanted: string, cursor: number): Generator<Found> {
  const [, what = "", digits] = /^(step|block)?\s*(\d+)$/.exec(wanted) ?? [];
  if (!digits) return;
  const number = Number(digits);
  if (what !== "block" && number >= model.firstStep && number <= model.lastStep)
    yield { kind: "step", text: `step ${number}`, step: number };
  if (what !== "step" && number < model.settings.num_blocks)
    yield { kind: "block", text: `block ${number}`, step: cursor, block: number };
  const span = what ? null : model.request(number);
  if (span) yield { kind: "request", text: span.label || span.short, ...first(model, span) };
}

function* evictions(model: Model): Generator<Found> {
  const { evicted } = model.measures;
  for (let i = 0; i < evicted.length; i += 1) {
    const text = `${evicted.at(i)} block${evicted.at(i) === 1 ? "" : "s"} evicted`;
    if (evicted.at(i)) yield { kind: "evicted", text, step: model.firstStep + i };
  }
}

function* happenings(model: Model, kind: string): Generator<Found> {
  const all = model.requests.flatMap((span) =>
    HAPPENINGS[kind](span, model).map((step) => ({ kind, text: kind, step, request: span.id })),
  );
  yield* all.filter(({ step }) => step >= model.firstStep).sort((a, b) => a.step - b.step);
}

/** Finds text in the prompt or the output, with the step that computed the token in which it begins. */
function* texts(model: Model, span: RequestSpan, wanted: string): Generator<Found> {
  const whole = span.texts.join("");
  const lower = whole.toLowerCase();
  let at = lower.indexOf(wanted);
  for (let n = 0; at >= 0 && n < PER_REQUEST; n += 1) {
    const index = tokenAt(span.texts, at);
    const isOutput = index >= span.promptLength;
    const step = isOutput ? span.tokenSteps[index - span.promptLength] : first(model, span).step;
    const end = at + wanted.length;
    const [from, to] = [Math.max(0, at - AROUND), end + AROUND];
    const text = `${from ? "…" : ""}${whole.slice(from, to)}${to < whole.length ? "…" : ""}`;
    const kind = isOutput ? "output" : "prompt";
    yield { kind, text, step: Math.max(step, model.firstStep), request: span.id };
    at = lower.indexOf(wanted, end);
  }
}

function tokenAt(pieces: string[], offset: number) {
  let seen = 0;
  return pieces.findIndex((piece) => (seen += piece.length) > offset);
}

const first = (model: Model, span: RequestSpan) => ({
  step: Math.max(span.admissions[0]?.step ?? span.arrived ?? model.firstStep, model.firstStep),
  request: span.id,
});
