/**
 * The one sentence of a step: what was computed, then the most important clauses, as many as two lines hold.
 * It says nothing that the frame does not show: counts come from the same lists.
 */

import { CLAUSES, COMMIT, FILLER, names } from "./clauses.ts";
import type { Frame } from "./frame.ts";
import { lacks } from "./knowledge.ts";
import type { Model } from "./model.ts";
import { SHORT } from "./short_clauses.ts";
import {
  agree,
  bold,
  capital,
  count,
  hashNames,
  list,
  plain,
  type Span,
  say,
  sum,
} from "./words.ts";

/** Letters that fit into two lines at 1280 px; a name's swatch counts as two. */
const ROOM = 240;
/** How much is told: of the lanes, of the memory, too, or of everything. A level has the most clauses it tells. */
export const LEVELS = ["lanes", "memory", "all"] as const;
export type Level = (typeof LEVELS)[number];
const MOST_CLAUSES: Record<Level, number> = { lanes: 2, memory: 2, all: 3 };

export function sentence(model: Model, step: number): Span[] {
  return compose(model.frame(step)).spans;
}

/** The sentence, and the kinds of clauses after its lead, in order. */
export function compose(frame: Frame, level: Level = "all"): { kinds: string[]; spans: Span[] } {
  const clauses: { kind: string; rank: number; spans: Span[] }[] = [];
  const isShort = level === "lanes";
  for (const [kind, addClauses] of Object.entries(isShort ? SHORT : CLAUSES))
    addClauses(frame, (rank, spans) => clauses.push({ kind, rank, spans }));
  const chosen = new Set();
  const ended = endOfStepBefore(frame);
  // As much as in the whole sentence, so that a lower level tells a part of it.
  let room = ROOM - width(opening(frame, "all", false)) - ended.length;
  for (const clause of clauses.toSorted((a, b) => a.rank - b.rank)) {
    const { rank, spans } = clause;
    if (chosen.size === MOST_CLAUSES[level] || (chosen.size && rank >= FILLER && !isShort)) break;
    if (chosen.size && width(spans) >= room) continue;
    chosen.add(clause);
    room -= width(spans) + 1;
  }
  const told = clauses.filter((clause) => chosen.has(clause));
  // That requests gain a token each says the same as the number of decodes.
  const lead = bold(opening(frame, level, isShort && told.some(({ kind }) => kind === "routine")));
  const commit = told.find(({ kind }) => COMMIT.has(kind));
  let spans: Span[] = lead;
  for (const clause of told) {
    const begin = clause === commit ? ended : "";
    spans = say`${spans} ${begin}${begin ? clause.spans : capital(clause.spans)}`;
  }
  return { kinds: told.map(({ kind }) => kind), spans };
}

/** Asynchronous scheduling: the tokens are those of the step before. "Step 6 ends: ", or nothing. */
function endOfStepBefore({ step, story }: Frame) {
  const before = story.finished.find((one) => one < step);
  return before === undefined ? "" : `Step ${before} ends: `;
}

function width(spans: Span[]) {
  return plain(spans).length + 2 * spans.filter((span) => span.request !== undefined).length;
}

/** The lead: how many tokens of what, of its decodes only unless they are told. */
function opening(frame: Frame, level: Level, isTold: boolean) {
  const { step, status, story, state, budget, running, waiting } = frame;
  if (story.scheduled) {
    if (lacks(state, "scheduled_tokens")) return say`Step ${step}.`;
    if (!story.rows.length) return say`Step ${step}: nothing is computed.`;
    const parts = work(frame, isTold);
    if (!parts.length) return say`Step ${step}.`;
    if (level !== "all") return say`Step ${step}: ${list(parts)}.`;
    const all = lacks(state, "settings") ? budget.tokens : budget.budget;
    const some = lacks(state, "settings") ? "" : `${budget.tokens} of `;
    const computed = `${some}${count(all, "token")}`;
    return say`Step ${step}: ${list(parts)}, ${computed}.`;
  }
  if (status === "pending") return say`Step ${step} has not begun.`;
  if (status === "running") return say`Step ${step} is being scheduled.`;
  if (status === "finished" && frame.model.source.engine) return reported(frame);
  if (status === "finished") return say`Step ${step}: scheduling failed and nothing is computed.`;
  if (lacks(state, "admissions")) return say`Step ${step}: the log begins here.`;
  const waits = waiting.length ? ` and ${waiting.length} waiting` : "";
  return say`Step ${step}: the log begins here, with ${count(running.length, "request")} running${waits}.`;
}

/** The lead where a foreign log has no plan: what the engine reported. */
function reported({ step, story: { counted, stored, evictions } }: Frame) {
  if (counted) {
    const { prefills, prefill_tokens, decodes, waiting } = counted;
    const parts = decodes ? [count(decodes, "decode")] : [];
    if (prefills) parts.push(`${count(prefill_tokens, "token")} of ${count(prefills, "prompt")}`);
    const waits = waiting
      ? ` ${count(waiting, "request")} ${agree(waiting, "waits", "wait")}.`
      : "";
    return say`Step ${step}: ${parts.length ? list(parts) : "nothing is computed"}.${waits}`;
  }
  // A removed block that the log did not know was in the cache before; nothing says when it was stored.
  const gone = new Set(evictions.map(({ node }) => node));
  const news = stored.filter(({ nodes, tokens }) => tokens.length || !gone.has(nodes[0]));
  const hashes = news.flatMap((one) => one.hashes);
  if (!hashes.length) return say`Step ${step}: no block is stored.`;
  const places = list([...new Set(news.map(({ medium }) => medium))]);
  const blocks = `${agree(hashes, "block", "blocks")} ${hashNames(hashes)} ${agree(hashes, "is", "are")}`;
  return say`Step ${step}: ${blocks} stored in ${places}.`;
}

/** "5 decodes", "10 tokens of Eva's prompt", ... */
function work(frame: Frame, isTold: boolean) {
  const { rows } = frame.story;
  const decodes = rows.filter(({ kind }) => kind === "decode");
  const prompts = rows.filter(({ kind, end, prompt }) => kind === "prefill" && end <= prompt);
  const others = rows.filter((row) => !decodes.includes(row) && !prompts.includes(row));
  const drafts = sum(rows, ({ drafts: { length } }) => length);
  const tokens = (some: typeof rows) =>
    count(
      sum(some, ({ start, end }) => end - start),
      "token",
    );
  const parts = [];
  if (decodes.length && !isTold) parts.push(say`${count(decodes.length, "decode")}`);
  if (prompts.length) {
    const whose =
      prompts.length > 2
        ? `${prompts.length}`
        : list(prompts.map((row) => say`${names(frame, [row])}'s`));
    parts.push(say`${tokens(prompts)} of ${whose} ${agree(prompts, "prompt", "prompts")}`);
  }
  if (others.length) parts.push(say`${tokens(others)} for ${names(frame, others, 2)} to catch up`);
  if (drafts) parts.push(say`${count(drafts, "draft")} to check`);
  return parts;
}
