/**
 * The words for decisions. The catalogue is `visualizer/reading/messages.json`; Python's `messages.py` beside it
 * fills the same messages and explains the placeholders.
 */

import messages from "../../../reading/messages.json" with { type: "json" };
import { duration } from "./duration.ts";
import type { Events } from "./events.ts";
import type { Mask } from "./request_spans.ts";
import type { Obstacle, Row } from "./story.ts";
import { count, plain, type Span, say } from "./words.ts";

export { messages };

export const reasons: Record<
  string,
  { short: string; clause: string; numbers?: string; waited_for?: string }
> = messages.reasons;

/** Why a running request gets nothing, by its reason. */
export const stalledWords: Record<string, string> = messages.stalled;

/**
 * "computed in vain in step 7: the request had already ended".
 *
 * @param step to name it
 */
export function wastedWords(why: "ended" | "preempted" | "dropped", step?: number) {
  return text(messages.wasted[why], { step: step === undefined ? "" : ` in step ${step}` });
}

/** Short words for a waiting reason, for lanes and tables: "batch full". */
export const reasonWords: Record<string, string> = Object.fromEntries(
  Object.entries(reasons).map(([reason, { short }]) => [reason, short]),
);

/** Fills a message's placeholders. */
export function fill(message: string, values: Record<string, number | string | Span>) {
  const [begin, ...rest] = message.split(/\{(\w+)(?::([^}]*))?\}/);
  let spans = say`${begin}`;
  for (let i = 0; i < rest.length; i += 3) {
    const [name, form, after] = rest.slice(i, i + 3);
    spans = say`${spans}${formatted(values[name], form)}${after}`;
  }
  return spans;
}

function formatted(value: any, form: string | undefined) {
  if (typeof value !== "number" || !form) return value;
  if (form === "none") return value || form;
  const [one, many] = form.split("|");
  if (many === undefined) return count(value, one);
  return value === 1 ? one : many;
}

/** The same as a string. */
export function text(message: string, values: Record<string, number | string>) {
  return plain(fill(message, values));
}

/**
 * "the model wanted "The"; 5 of 2,048 allowed, 3%": what a grammar left to choose from.
 *
 * @param vocab number of tokens in the vocabulary, if the log has it
 */
export function maskWords({ allowed, wanted, mass }: Mask, vocab: number | null) {
  const { short, short_wanted, of } = messages.mask;
  return text(short, {
    wanted: wanted === null ? "" : text(short_wanted, { text: JSON.stringify(wanted) }),
    allowed,
    of: vocab === null ? "" : text(of, { vocab: vocab.toLocaleString("en") }),
    mass: mass === null ? "?" : percent(mass),
  });
}

/** "42%", "3%", "0.05%", "under 0.01%". */
function percent(share: number) {
  if (share > 0 && share < 0.0001) return "under 0.01%";
  return `${share < 0.1 ? Number((100 * share).toPrecision(2)) : Math.round(100 * share)}%`;
}

/** What an admitted request fetches from the tiers below the GPU, or why it does not; "" if they have nothing. */
export function movedWords(all: Events["blocks_moved"][], id: number, size: number) {
  const about = all.filter(
    ({ request, target, reason }) =>
      request === id && (target === "gpu" || reason === "dearer" || reason === "late"),
  );
  const came = about.filter(({ reason }) => reason !== "late");
  const moves = came.length ? came : about; // what came is more than what did not come
  if (!moves.length) return "";
  const words: Record<string, string> = messages.moved;
  const { us, fetch_us, compute_us } = moves[0].t ?? {};
  const values = {
    tokens: size * moves.reduce((sum, { slots }) => sum + slots.length, 0),
    tier: moves.map(({ source }) => words[source]).join(" and "),
    us: duration(us ?? 0),
    fetch: duration(fetch_us ?? 0),
    compute: duration(compute_us ?? 0),
    detail: moves[0].detail ?? "",
  };
  if (moves[0].target !== "gpu") return text(words[moves[0].reason], values);
  return text(words.fetched, values) + (compute_us == null ? "" : text(words.instead, values));
}

/** "2 are free and 1 can be evicted". */
export function supply(free: number, evictable: number) {
  return text(messages.supply, { free, evictable });
}

/**
 * Why the head of the queue was not admitted.
 *
 * @returns "too few KV blocks are free: it needs 5, 2 are free and 1 can be evicted"
 */
export function whyBlocked(
  { reason, need, have, free, evictable }: Obstacle,
  settings: { token_budget: number; max_batch_size: number },
): string {
  const { clause, numbers } = reasons[reason] ?? { clause: reason.replaceAll("_", " ") };
  if (!numbers) return text(clause, { who: "it" });
  // `have` leaves out the head's own cached prefix: evicting what it is about to use gains nothing.
  const others = have - free;
  const own = evictable - others;
  return text(`${clause}: ${numbers}`, {
    who: "it",
    need,
    have: Math.max(0, have),
    limit: reason === "batch_full" ? settings.max_batch_size : settings.token_budget,
    supply: supply(free, others),
    prefix: own > 0 ? text(messages.own_prefix, { own }) : "",
  });
}

/** "; 48 of them were computed by replica 0 and moved here"; "" if none were. */
export function adoptedWords(prefix: { adopted: number; source: string }) {
  return prefix.adopted ? text(messages.adopted, prefix) : "";
}

/** What a request computes in a step. */
export function rowWords({ kind, start, end, prompt, length, drafts }: Row) {
  return text(messages[kind], {
    count: end - start,
    range: end - start === 1 ? end : `${start + 1} to ${end}`,
    // A placeholder's position may be the one after the last token.
    length: end <= prompt ? prompt : Math.max(length, end),
    left: end < length ? text(messages.left, { left: length - end }) : "",
    drafts: drafts.length ? text(messages.drafts, { drafts: drafts.length }) : "",
  });
}
