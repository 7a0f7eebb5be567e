/**
 * Questions that people ask about a run: "slowest", "p99", "preempted twice", "no free blocks", "missed the cache",
 * "outside the SLO", "why is Hana slow". An answer is a list of requests in the order that the question implies,
 * each at the step that explains it; the search box walks through it. Pure functions.
 */

import { lacks } from "../model/knowledge.ts";
import type { Model } from "../model/model.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { lateness, type Slo } from "../model/run_summary.ts";
import { CAUSES, type RequestTime, WORK } from "../model/waterfall.ts";
import { causeName, headline, timeWords } from "../model/waterfall_words.ts";
import { missedWords, whyMissed } from "../model/why_missed.ts";
import { count, plain } from "../model/words.ts";
import type { Found } from "./search.ts";

/** What a question says of one request; null if it is not in the answer. */
type Answer = {
  amount: number;
  text: string;
  step: () => number; // only asked of the answers that are shown
  only?: Found["only"];
} | null;

interface Question {
  /** The kind of its results. */
  kind: string;
  of: (span: RequestSpan) => Answer;
  /** Picks from the answers, which have the largest amounts first. */
  pick?: (answers: [RequestSpan, NonNullable<Answer>][]) => [RequestSpan, NonNullable<Answer>][];
}

type Asked = { model: Model; slo: Slo; words: string[] };

const TIMES = { twice: 2, two: 2, three: 3, four: 4, five: 5, "more than once": 2, often: 2 };
/** Other words for causes than their names. */
const ALSO: Record<string, RegExp> = {
  batch_full: /^(no )?(free )?seats?$/,
  no_free_blocks: /^(no )?(free )?(kv )?(blocks|memory)$/,
  token_budget: /^(token )?budget$/,
};

const QUESTIONS: [RegExp, (asked: Asked) => Question | null][] = [
  [
    /^(?:why (?:is|was|were|did|does|are) )(.+?)(?: so| take so)?(?: slow| late| long| wait)?$/,
    why,
  ],
  [
    /^(?:the |which (?:requests? )?(?:is|are|was|were) (?:the )?)?slow(?:est)?(?: requests?)?$/,
    slowest,
  ],
  [/^(?:the )?p ?(\d\d?(?:\.\d+)?)( (?:of )?(?:the )?(?:ttft|first tokens?))?$/, percentile],
  [/^(?:the )?(?:slowest|longest|late|latest) first tokens?$|^ttft$/, firstTokens],
  [/^preempted (?:(twice|more than once|often)|(\d+|two|three|four|five) times)$/, preempted],
  [/^(?:miss(?:ed|es)?|(?:cache )?miss(?:ed|es)?(?: the cache)?|not cached)$/, missed],
  [/^(?:late|(?:outside|missed|broke) (?:the )?slo)$/, late],
  [/^(?:unfinished|(?:never|not) (?:finished|ended)|still running)$/, unfinished],
  [/^(?:(?:which )?(?:waited|waits?|waiting) (?:for|because of) )?(.{3,})$/, waited],
];

/** Questions to suggest for a run in which requests wait for these causes. */
export function suggestions(model: Model, causes: string[]): string[] {
  const [someone] = model.requests;
  if (!someone) return [];
  const isTimed = model.waterfall.unit === "us";
  const lostSeats = model.requests.some(({ preemptions }) => preemptions.length > 1);
  return [
    "slowest",
    "p99",
    ...(isTimed ? ["outside the SLO"] : []),
    ...(lostSeats ? ["preempted twice"] : []),
    ...new Set(causes.map(causeName)),
    "missed the cache",
    `why is ${someone.label || someone.short} slow`,
  ];
}

/** Whether words are a question, even one whose answer is empty. */
export function isQuestion(model: Model, query: string, slo: Slo) {
  return questionOf(model, query, slo) !== null;
}

/** Yields the answer to a question, and null while it is computed. Other words yield nothing. */
export function* ask(model: Model, query: string, slo: Slo): Generator<Found | null> {
  const question = questionOf(model, query, slo);
  if (!question) return;
  model.waterfall.all();
  let answers: [RequestSpan, NonNullable<Answer>][] = [];
  for (const span of model.requests) {
    const answer = question.of(span);
    if (answer) answers.push([span, answer]);
    yield null;
  }
  answers.sort(([, one], [, other]) => other.amount - one.amount);
  answers = question.pick?.(answers) ?? answers;
  for (const [{ id }, { text, step, only }] of answers)
    yield {
      kind: question.kind,
      text,
      step: Math.max(step(), model.firstStep),
      request: id,
      only,
    };
}

function questionOf(model: Model, query: string, slo: Slo): Question | null {
  const wanted = query
    .trim()
    .toLowerCase()
    .replace(/\s+/g, " ")
    .replace(/[?.!]+$/, "");
  for (const [pattern, of] of QUESTIONS) {
    const match = pattern.exec(wanted);
    const question = match && of({ model, slo, words: match.slice(1) });
    if (question) return question;
  }
  return null;
}

/** Why one request was slow: opens where its time went. */
function why({ model, words: [name] }: Asked): Question | null {
  const named = model.requests.filter((span) =>
    [span.name, span.short, span.label].some((one) => one?.toLowerCase() === name),
  );
  if (!named.length) return null;
  const of = (span: RequestSpan): Answer => {
    if (!named.includes(span)) return null;
    const time = model.waterfall.of(span.id);
    return { ...total(model, time), text: plain(headline(model, time)), only: "waterfall" };
  };
  return { kind: "why slow", of };
}

function slowest({ model }: Asked): Question {
  return { kind: "slowest", of: ({ id }) => total(model, model.waterfall.of(id)) };
}

/** The request at a percentile (nearest rank), and after it the slower ones. */
function percentile({ model, words: [digits, first] }: Asked): Question {
  const { of } = first ? firstTokens({ model }) : slowest({ model } as Asked);
  const pick: Question["pick"] = (answers) => {
    const rank = Math.max(1, Math.ceil((Number(digits) / 100) * answers.length));
    return answers.slice(0, answers.length - rank + 1).reverse();
  };
  return { kind: `p${digits} and up`, of, pick };
}

function firstTokens({ model }: Pick<Asked, "model">): Question {
  const of = ({ id, tokenSteps }: RequestSpan): Answer => {
    const { ttft } = model.waterfall.of(id);
    if (ttft === null || !tokenSteps.length) return null;
    const text = `first token after ${timeWords(ttft, model.waterfall.unit)}`;
    return { amount: ttft, text, step: () => tokenSteps[0] };
  };
  return { kind: "first token", of };
}

function preempted({ words: [word, digits] }: Asked): Question {
  const least = TIMES[(word ?? digits) as keyof typeof TIMES] ?? Number(digits);
  const of = ({ preemptions }: RequestSpan): Answer => {
    const { length } = preemptions;
    if (length < least) return null;
    const steps = preemptions.map(({ step }) => step).join(", ");
    const text = `preempted ${count(length, "time")}: step ${steps}`;
    return { amount: length, text, step: () => preemptions[0].step };
  };
  return { kind: "preempted", of };
}

/** Requests that computed prompt tokens that a cache could have had, most first. */
function missed({ model }: Asked): Question {
  const of = ({ id, sample }: RequestSpan): Answer => {
    const answer = sample || lacks(model, "cached_tokens") ? null : whyMissed(model, id);
    if (answer?.step == null || answer.kind === "whole") return null;
    const { most, found, step } = answer;
    const [, reason] = missedWords(model, answer);
    return { amount: most - found, text: plain(reason), step: () => step };
  };
  return { kind: "missed", of };
}

function late({ model, slo }: Asked): Question {
  const { unit } = model.waterfall;
  const of = ({ id }: RequestSpan): Answer => {
    const time = model.waterfall.of(id);
    const { first, gaps } = lateness(model, time, slo);
    if (!first && !gaps) return null;
    const text = first
      ? `first token after ${timeWords(time.ttft ?? 0, unit)}`
      : "too long between its tokens";
    return { ...total(model, time), text };
  };
  return { kind: "late", of };
}

function unfinished({ model }: Asked): Question {
  const of = ({ id, finished }: RequestSpan) =>
    finished ? null : total(model, model.waterfall.of(id));
  return { kind: "unfinished", of };
}

/** Requests that waited for one cause, longest first; null if the words name none. */
function waited({ model, words: [name] }: Asked): Question | null {
  const causes = CAUSES.filter((cause) => !WORK.includes(cause));
  const names = (cause: string) =>
    ALSO[cause]?.test(name) || causeName(cause).toLowerCase().startsWith(name) || cause === name;
  const wanted = causes.find(names);
  if (!wanted) return null;
  const of = ({ id }: RequestSpan): Answer => {
    const time = model.waterfall.of(id);
    const amount = time.byCause[wanted];
    if (!amount) return null;
    const text = `${timeWords(amount, model.waterfall.unit)}: ${causeName(wanted)}`;
    return { amount, text, step: () => longest(time, [wanted]) };
  };
  return { kind: "waited", of };
}

/** A request's whole time, what most of the rest was, and the step in which that happened. */
function total(model: Model, time: RequestTime) {
  const { unit } = model.waterfall;
  const rest = CAUSES.filter((cause) => time.byCause[cause] && !WORK.includes(cause));
  const most = rest.sort((a, b) => time.byCause[b] - time.byCause[a])[0];
  const words = most ? `, of it ${timeWords(time.byCause[most], unit)} ${causeName(most)}` : "";
  const text = `${timeWords(time.total, unit)}${words}`;
  return { amount: time.total, text, step: () => longest(time, most ? [most] : WORK) };
}

/** The step of the longest span with one of these causes. */
function longest({ spans, request }: RequestTime, causes: string[]) {
  const long = spans.filter(({ cause }) => causes.includes(cause));
  const length = ({ start, end }: RequestTime["spans"][number]) => end - start;
  const none = request.arrived ?? 0;
  return long.length ? long.reduce((a, b) => (length(b) > length(a) ? b : a)).step : none;
}
