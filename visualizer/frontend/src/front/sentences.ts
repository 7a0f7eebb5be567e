/** What the front page says: every number and every name comes from the log, for any prompt. */

import type { RequestSpan } from "../model/request_spans.ts";
import { agree, bold, count, list, type Span, say } from "../model/words.ts";
import {
  isVisitor,
  longReading,
  median,
  type SentAway,
  sentAway,
  sharers,
  waitOf,
} from "./facts.ts";
import type { Run } from "./run.ts";

/** What a scene says: what happened and why. */
export interface Told {
  what: Span[];
  why: Span[];
}

/** "46 milliseconds", "0.14 seconds"; times are microseconds. */
export function seconds(us: number) {
  const value = us / 1e6;
  if (value < 0.0995) return `${Math.max(1, Math.round(us / 1000))} milliseconds`;
  return `${value.toFixed(value < 9.95 ? 2 : 1)} seconds`;
}

const NUMBERS = ["none", "one", "two", "three", "four"];

const milliseconds = (us: number) => `${Math.round(us / 1000)} ms`;

/** A person as the subject or the object of a sentence: the visitor is "you". */
function who(request: RequestSpan): Span {
  return { text: isVisitor(request) ? "you" : request.name, request: request.id, bold: true };
}

const whose = (request: RequestSpan): Span[] =>
  isVisitor(request) ? bold(say`your`) : say`${who(request)}’s`;

/** With a capital letter, also where the visitor is the first word. */
function capital([first, ...rest]: Span[]): Span[] {
  return [{ ...first, text: first.text[0].toUpperCase() + first.text.slice(1) }, ...rest];
}

const verb = (request: RequestSpan, one: string, many: string) => (isVisitor(request) ? many : one);

/** "Ada, Bo and Cleo". */
const everyone = (requests: RequestSpan[]) => list(requests.map(who));

/** Before the visitor has asked. */
export function invitation(run: Run, now: number): Told {
  const others = run.model.requests.filter((one) => run.cell(one, now));
  return {
    what: say`${everyone(others)} ${agree(others, "gets", "get")} one word per step from the same engine. Ask something, and see how your request joins them.`,
    why: say`Their ${now} steps are a recording. When you ask, a real engine with a small language model serves all of you in this page; what you type stays here.`,
  };
}

/** While the visitor's request waits for the engine. */
export function starting(waited: number, others: RequestSpan[]): Told {
  return {
    what: say`${bold(say`You have waited ${seconds(waited)}`)} because the engine is starting. It starts once; then it answers at once.`,
    why: say`Until then, ${everyone(others)} ${agree(others, "is", "are")} shown from a recording of this very set-up. Only real tokens enter your lane.`,
  };
}

/** Scene 1: why the visitor waited, and that everyone gets a token per step. */
export function perStep(run: Run, now: number, engine: number, pace: number): Told {
  const you = run.you;
  if (!you) return invitation(run, now);
  const wait = waitOf(run, you, now);
  const isDone = run.cell(you, now) !== null || run.written(you, now) > 0;
  const spent = (wait?.us ?? 0) + engine;
  const cause: Span[] = wait ? because(run, wait) : say``;
  const first = !engine
    ? say``
    : wait
      ? say`the engine was starting, and for the last ${seconds(wait.us)} because `
      : say`the engine was starting`;
  let what: Span[];
  if (!wait && !engine)
    what = say`${bold(say`You did not have to wait`)}: your request was read in the next step.`;
  else if (!isDone) what = say`${bold(say`You are waiting`)} because ${cause}.`;
  else what = say`${bold(say`You waited ${seconds(spent)}`)} because ${first}${cause}.`;
  const writing = run.model.requests.filter((one) => run.cell(one, now)?.word != null);
  const reading = run.cell(you, now)?.reads;
  const gets = !isDone
    ? say``
    : reading
      ? say` Now it reads your question: ${count(reading, "token")} in this step.`
      : writing.length > 1
        ? say` Now each of the ${NUMBERS[writing.length]} gets one token per step.`
        : say` Now you get one token per step.`;
  return {
    what: say`${what}${gets}`,
    why: say`A token is a word, a part of one, or a comma. ${slower(run, now, pace)}`,
  };
}

/** How much slower the picture is than the engine; `pace` is the time of a column in ms. */
function slower(run: Run, now: number, pace: number) {
  const took = median(run.stepsTo(now).map((step) => run.took(step)));
  const factor = Math.round(pace / (took / 1000));
  return factor > 1
    ? `So that you can read, the picture is ${factor} times slower than the engine.`
    : "";
}

function because(
  run: Run,
  { cause, reader }: { cause: string; reader: RequestSpan | null },
): Span[] {
  const { token_budget: budget } = run.model.settings;
  if (cause === "token_budget" && reader)
    return say`${who(reader)} had asked a long question before you, and the engine reads at most ${budget} tokens per step`;
  if (cause === "batch_full") return say`all seats were taken`;
  if (["no_free_blocks", "whole_sequence", "reserved_blocks", "expected_tokens"].includes(cause))
    return say`memory had no room for your question`;
  return say`the engine computed a step for the others`;
}

/** Scene 2: one long prompt makes others stutter, so it is cut. */
export function inPieces(run: Run, now: number): Told {
  const reading = longReading(run, now);
  const { token_budget: budget } = run.model.settings;
  if (!reading)
    return {
      what: say`No long question was read while your request was there.`,
      why: say`The engine would have cut it into pieces of at most ${budget} tokens.`,
    };
  const { request, steps, tokens, slow, usual } = reading;
  const cut =
    steps.length > 1
      ? say`the engine cut it into ${steps.length} pieces: at most ${budget} tokens fit into a step`
      : say`that fits into one step of at most ${budget}`;
  const what = say`${whose(request)} question has ${tokens} tokens to read, and ${cut}.`;
  const others = run.model.requests.filter(
    (one) => one !== request && steps.some((step) => run.cell(one, step)?.reads === 0),
  );
  if (!(slow > 0) || !others.length)
    return { what, why: say`Between two pieces, everyone else could get a token.` };
  const felt = isSlower(slow, usual)
    ? say`took ${milliseconds(slow)} instead of ${milliseconds(usual)}, so ${everyone(others)} stuttered`
    : say`took ${milliseconds(slow)}, others ${milliseconds(usual)}, so ${everyone(others)} hardly noticed`;
  return {
    what: capital(what),
    why: say`A step ends for everyone when its last token is computed. A step with a piece ${felt}, ${steps.length > 1 ? "but nobody had to wait for the whole question" : "once"}.`,
  };
}

/** Whether steps with a piece of a long prompt took clearly longer than others. */
export const isSlower = (slow: number, usual: number) => slow > usual * 1.15;

/** Scene 3: the same beginning is not computed twice. */
export function sameBeginning(run: Run, now: number): Told {
  const shared = sharers(run, now);
  const you = run.you;
  if (!you || !shared)
    return {
      what: say`No part of your prompt was in memory, so the engine had to read all of it.`,
      why: say`Only whole blocks of ${run.model.settings.block_size} tokens are kept.`,
    };
  const { found, blocks, others } = shared;
  const rest = you.promptLength - found;
  return {
    what: say`Your prompt has ${count(you.promptLength, "token")}, and ${found} of them were in memory before you asked, because it begins as the others’ do.`,
    why: say`${others.length ? say`You share ${count(blocks.length, "block")} with ${everyone(others)}` : say`You found ${count(blocks.length, "block")}`}, so the engine had to read only ${rest} ${agree(rest, "token", "tokens")}.`,
  };
}

/** Scene 4: memory is full and someone has to go. */
export function memoryIsFull(run: Run): Told {
  const away = sentAway(run);
  if (!away)
    return {
      what: say`Memory was large enough for everyone in this run, so no request had to go.`,
      why: say`It has ${run.model.settings.num_blocks} blocks of ${run.model.settings.block_size} tokens. With a shorter question it is smaller, and it gets full.`,
    };
  const { request, by, step, blocks } = away;
  const isOwn = by === request || !by;
  const need = isOwn
    ? say`${who(request)} ${verb(request, "needs", "need")} one more block to go on, and none is free.`
    : say`${who(by)} ${verb(by, "needs", "need")} one more block to go on, and none is free.`;
  const written = run.written(request, step);
  return {
    what: say`${capital(need)} The last to be admitted gives its memory back, and that is ${isOwn && by ? (isVisitor(request) ? say`you, too` : say`${request.name}, too`) : say`${who(request)}`}.`,
    why: say`${capital(whose(request))} ${count(written, "token")} ${agree(written, "stays", "stay")} on the screen${again(away)}. Of ${whose(request)} ${count(blocks.length, "block")} of memory, ${fates(run, away)}.`,
  };
}

function again({ again, request }: SentAway): Span[] {
  if (!again) return say``;
  return say`; when ${isVisitor(request) ? "you return" : say`${who(request)} returns`}, the engine reads ${count(again, "token")} again`;
}

/** "the others keep 2, 2 are kept until needed, and Bo gets 1". */
function fates(run: Run, { blocks }: SentAway): Span[] {
  const parts: Span[][] = [];
  const of = (fate: string) => blocks.filter((one) => one.fate === fate);
  const others = of("others").length;
  if (others) parts.push(say`the others keep ${others}`);
  const kept = of("cached").length;
  if (kept) parts.push(say`${kept} ${agree(kept, "is", "are")} kept until needed`);
  for (const to of new Set(of("taken").map((one) => one.to))) {
    const owner = run.model.requestSpan(Number(to));
    const number = of("taken").filter((one) => one.to === to).length;
    parts.push(say`${who(owner)} ${verb(owner, "gets", "get")} ${number}`);
  }
  const free = of("free").length;
  if (free) parts.push(say`${free} ${agree(free, "is", "are")} free`);
  return list(parts);
}
