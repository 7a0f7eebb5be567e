/**
 * The clauses of a step's sentence, one function for each kind, in the order of the sentence: before the
 * step, scheduling, the forward pass, the commit. A function adds clauses with a rank, or none; smaller
 * ranks are more important.
 */

import { slotWords } from "./adapters.ts";
import { admissionWords, needOf, needWords, waitOf } from "./decisions.ts";
import type { Frame } from "./frame.ts";
import type { Fate } from "./happenings.ts";
import { gapWords, halfDot, lacks } from "./knowledge.ts";
import { fill, messages, movedWords, reasons, stalledWords, supply } from "./messages.ts";
import { rowWasted } from "./request_spans.ts";
import type { Preemption } from "./story.ts";
import { agree, are, clearedWords, count, hashNames, list, type Span, say, sum } from "./words.ts";

type Add = (rank: number, spans: Span[]) => void;

/** Clauses from this rank on are used only where there is no other. */
export const FILLER = 20;
/** The kinds that tell of tokens: with asynchronous scheduling, of those of the step before. */
export const COMMIT = new Set(
  "failed wasted forked forced joined finished firstTokens routine".split(" "),
);
/** Up to this many requests that get a victim's blocks are named; more are counted. */
const MOST_TAKERS = 3;

/** Functions that add the clauses of each kind. */
export const CLAUSES: Record<string, (frame: Frame, add: Add) => void> = {
  gaps({ story }, add) {
    for (const gap of story.gaps) add(0, say`${gapWords(gap)}.`);
  },

  aborted(frame, add) {
    const ends = frame.story.endings.filter(({ reason }) => reason === "abort");
    if (ends.length) add(4, say`${names(frame, ends)} ${agree(ends, "was", "were")} aborted.`);
  },

  cleared({ story }, add) {
    const made = story.evictions.filter(({ reason }) => reason === "cleared");
    const blocks = sum(made, (one) => one.blocks.length);
    if (blocks) add(2, say`The cache is cleared: ${clearedWords(blocks, made[0].hash)}.`);
  },

  adopted({ story }, add) {
    const { adoptions, evictions } = story;
    if (!adoptions.length) return;
    const blocks = sum(adoptions, (one) => one.blocks.length);
    const room = sum(evictions, (one) => (one.reason === "adopted" ? one.blocks.length : 0));
    const sources = [...new Set(adoptions.map(({ source }) => source))].join(" and ");
    const moved = `${count(blocks, "block")} computed by ${sources} ${agree(blocks, "is", "are")} moved here`;
    const gone = `${count(room, "cached block")} ${agree(room, "is", "are")} evicted to make room`;
    add(2, say`${moved}${room ? `; ${gone}` : ""}.`);
  },

  preempted(frame, add) {
    const { story } = frame;
    const needers = [...new Set(story.preemptions.map(({ by }) => by))];
    for (const by of needers) {
      const losses = story.preemptions.filter((one) => one.by === by);
      const [first] = losses;
      const { free, evictable } = first;
      const mark = halfDot(frame.model, "preemption_causes");
      if (mark || !first.want) {
        const cause = first.want
          ? say`; ${mark}${names(frame, [by])} needs ${needWords(frame, first)}, ${supply(free, evictable)}`
          : "";
        const lost = losses.some(({ table }) => table.length) ? say`: ${fates(frame, losses)}` : "";
        const gone = say`${names(frame, losses)} ${agree(losses, "is", "are")} preempted`;
        add(by === needers[0] ? 1 : 2, say`${gone}${lost}${cause}.`);
        continue;
      }
      const name = names(frame, [by]);
      const need = needOf(frame, first);
      const needs = say`${name} needs ${count(need, "block")}`;
      const others = losses.filter(({ request }) => request !== by);
      const self = others.length < losses.length;
      const also = self ? say`, and then ${name} itself` : "";
      const gone = others.length
        ? say`so ${names(frame, others)} ${agree(others, "is", "are")} preempted${also}`
        : say`so it is preempted itself`;
      if (by !== needers[0]) {
        add(2, say`${needs}, too, ${gone}.`);
        continue;
      }
      // If the victim was the last to share the block, no copy is needed any more.
      const spared = !self && first.want.writesShared && story.takenBy(by).length < need;
      const end = spared ? say`, and ${name} need not copy a block any more` : "";
      add(1, say`${needs}, ${supply(free, evictable)}, ${gone}: ${fates(frame, losses)}${end}.`);
    }
  },

  resumed(frame, add) {
    for (const { request, resumed: again, found, length } of frame.story.admissions) {
      if (!again) continue;
      const { preemptions } = frame.model.requestSpan(request);
      const waited = waitOf(frame, request);
      const after = waited ? ` after ${count(waited, "step")}` : "";
      // Tokens that had been computed before any of its preemptions.
      const before = preemptions.filter(({ step }) => step < frame.step);
      const once = Math.max(0, ...before.map(({ computed }) => computed));
      const lost = Math.max(0, Math.min(length, once) - found);
      const rest =
        lost && !lacks(frame.model, "cached_tokens")
          ? `, ${lost} ${agree(lost, "has", "have")} to be computed again`
          : "";
      const resumes = admissionWords(frame.model, { resumed: again, after, found, length });
      add(3, say`${names(frame, [request])} ${resumes}${rest}.`);
    }
  },

  admitted(frame, add) {
    const fresh = frame.story.admissions
      .filter((one) => !one.resumed)
      .map((one) => ({ ...one, wait: waitWords(frame, one.request) }))
      .filter(({ found, wait }) => found || wait);
    const group = (some_: typeof fresh, whose: string) => {
      const found = sum(some_, (one) => one.found);
      const who = names(frame, some_);
      const waits = new Set(some_.map(({ wait }) => wait));
      const [wait] = waits;
      const of = say`${sum(some_, (one) => one.length)} prompt tokens ${agree(found, "was", "were")} in the cache`;
      if (some_.length === 1 && !wait) return say`${found} of ${who}'s ${of}.`;
      const how = (waits.size === 1 && wait) || "start";
      return found ? say`${who} ${how}; ${found} of ${whose} ${of}.` : say`${who} ${how}.`;
    };
    if (fresh.length > 2) add(5, group(fresh, "their"));
    else for (const one of fresh) add(5, group([one], "its"));
  },

  /** From the tiers below the GPU, and adapters into their slots. */
  fetched(frame, add) {
    const { story, state } = frame;
    for (const { request } of story.admissions) {
      const moved = movedWords(story.moves, request, state.blockSize);
      for (const words of [moved, slotWords(frame, request)])
        if (words) add(5, say`For ${names(frame, [request])}, ${words}.`);
    }
  },

  /** A request of which the budget leaves tokens for later. */
  cut(frame, add) {
    const row = frame.story.rows.find(({ end, length }) => end < length);
    if (!row) return;
    const { end, prompt, length } = row;
    const name = names(frame, [row]);
    const left = length - end;
    const of = say`${left} of ${count(prompt, "token")} ${agree(left, "is", "are")} left for later`;
    if (length === prompt) add(9, say`The budget cuts ${name}'s prompt: ${of}.`);
    else add(9, say`The budget leaves ${count(left, "token")} of ${name} for later.`);
  },

  evicted(frame, add) {
    const { story, step } = frame;
    // Blocks that a victim leaves in the cache may be evicted at once; an earlier clause has said so.
    const lost = new Set(story.preemptions.flatMap(({ table }) => table));
    const made = story.evictions.filter(
      ({ reason, blocks }) => reason === "room" && !blocks.every((block) => lost.has(block)),
    );
    if (!made.length) return;
    const needers = [...new Set(made.map(({ neededBy }) => neededBy))];
    const [{ since, free }] = made;
    const known = since !== null && since < step && made.every((one) => one.since === since);
    const blocks = count(
      sum(made, (one) => one.blocks.length),
      "cached block",
    );
    const age = known ? `, unused since step ${since},` : "";
    const hashed = frame.state.isHashed; // it evicts single blocks
    const leaves = made.length === 1 ? "a leaf of " : `${made.length} leaves with `;
    const gone = `${hashed ? "" : leaves}${blocks}${age} ${agree(made, "is", "are")} evicted`;
    const mark = halfDot(frame.model, "eviction_causes");
    const hashes = made.flatMap(({ hash }) => hash ?? []);
    if (hashes.length) return add(7, say`${gone}: ${hashNames(hashes)}.`);
    if (needers.includes(-1) || (mark && needers.length > 1)) return add(7, say`${gone}.`);
    const who = names(frame, needers);
    if (needers.length > 1) add(7, say`For ${who}, ${gone}.`);
    else {
      const need = count(story.takenBy(needers[0]).length, "block");
      const cause = say`${who} needs ${need} and ${are(free)} free`;
      add(7, mark ? say`${gone}; ${mark}${cause}.` : say`${cause}, so ${gone}.`);
    }
  },

  copied(frame, add) {
    const { copies } = frame.story;
    const who = names(frame, copies);
    if (copies.length > 1) {
      const where = list(copies.map(({ source, block }) => `${source} to ${block}`));
      add(8, say`${who} write into blocks that others share, so those are copied: ${where}.`);
    }
    if (copies.length !== 1) return;
    const [{ source, block, sharers }] = copies;
    const writes = say`${who} writes into a block it shares with ${names(frame, sharers)}`;
    add(8, say`${writes}, so block ${source} is copied to ${block}.`);
  },

  stalled(frame, add) {
    const { stalled: idle } = frame.story;
    for (const reason of new Set(idle.map((one) => one.reason))) {
      const some = idle.filter((one) => one.reason === reason);
      const words = fill(stalledWords[reason], {
        requests: some.length,
        budget: frame.budget.budget,
      });
      add(10, say`${names(frame, some)} ${words}.`);
    }
  },

  waiting(frame, add) {
    const { story, status } = frame;
    if (!story.scheduled) {
      const ids = status === "joined" ? [] : frame.waiting;
      if (ids.length) add(6, say`${names(frame, ids)} ${agree(ids, "waits", "wait")}.`);
      return;
    }
    // The victims of this step wait as well, but have a clause already.
    const ids = story.waiting.filter((id) =>
      story.preemptions.every(({ request }) => request !== id),
    );
    const deferred = ids.filter((id) =>
      story.scheduled?.skipped.some(([skipped]) => skipped === id),
    );
    const reasons = new Map(story.scheduled.skipped);
    for (const reason of new Set(deferred.map((id) => reasons.get(id) ?? ""))) {
      const same = deferred.filter((id) => reasons.get(id) === reason);
      const why = frame.reasonFor(reason, same);
      const who = say`${names(frame, same, 3)} ${agree(same, "waits", "wait")}`;
      add(6, say`${who} because ${why}.`);
    }
    const own = ids.filter((id) => frame.waitOf(id).head === id && !deferred.includes(id));
    const behind = ids.filter((id) => !own.includes(id) && !deferred.includes(id));
    const mark = halfDot(frame.model, "waiting_reasons");
    if (!story.blocked && behind.length)
      add(6, say`${names(frame, behind)} ${agree(behind, "waits", "wait")}.`);
    if (!own.length || !story.blocked) return;
    const head = own.length === 1 ? "it" : names(frame, [story.blocked.request]);
    const rest = behind.length
      ? say`; ${names(frame, behind, 3)} ${agree(behind, "waits", "wait")} behind ${head}`
      : "";
    const wait = say`${names(frame, own)} ${agree(own, "waits", "wait")}`;
    add(6, say`${wait} ${mark}because ${frame.obstacle}${rest}.`);
  },

  /** Static batching: seats that stay free. */
  freeSeats({ story, state }, add) {
    const { max_batch_size: seats } = state.settings;
    const free = seats - story.seats;
    if (story.blocked?.reason !== "static_batch" || free < 1) return;
    add(7, say`${free} of ${seats} seats ${agree(free, "is", "are")} free.`);
  },

  drafted({ story }, add) {
    const drafts = sum(story.rows, (row) => row.drafts.length);
    if (!drafts || !story.gains.length) return;
    const accepted = sum(story.gains, (one) => one.accepted);
    if (drafts === 1) add(10, say`The draft is ${accepted ? "accepted" : "rejected"}.`);
    else add(10, say`Of ${drafts} drafts ${are(accepted)} accepted.`);
  },

  draftsFailed({ story }, add) {
    if (!story.draftError) return;
    add(1, say`${fill(messages.draft_failed, { error: story.draftError })}.`);
  },

  failed(frame, add) {
    const ends = frame.story.endings.filter(({ reason }) => reason === "error");
    if (!ends.length) return;
    const letters = [...ends[0].message.replace(/\s+/g, " ")];
    const message = letters.length > 60 ? `${letters.slice(0, 59).join("")}…` : letters.join("");
    const why = message && ` (${message})`;
    const end = agree(ends, "ends", "end");
    add(0, say`the forward pass fails${why}, and ${names(frame, ends)} ${end} with it.`);
  },

  /** Rows of the step before that were computed in vain. */
  wasted(frame, add) {
    const { story, model } = frame;
    const rows = story.wasted.filter(({ request, of }) => {
      const span = model.request(request); // none if it ended before the log begins
      return span && rowWasted(span, of) === "ended";
    });
    if (!rows.length) return;
    const whose = say`${agree(rows, "a row", "the rows")} of ${names(frame, rows)}`;
    const ended = agree(rows, "the request had", "the requests had");
    add(9, say`${whose} ${agree(rows, "was", "were")} computed in vain: ${ended} already ended.`);
  },

  forked(frame, add) {
    const { forks } = frame.story;
    if (!forks.length) return;
    const [{ parent, blocks }] = forks;
    const own = forks.filter((one) => one.parent === parent);
    const are_ = agree(own, "is another sample", "are more samples");
    const share = agree(own, "shares", "share");
    const complete = say`${names(frame, [parent])}'s prompt is complete`;
    const shared = say`${share} its ${count(blocks, "block")}`;
    add(6, say`${complete}; ${names(frame, own)} ${are_} of it and ${shared}.`);
  },

  forced(frame, add) {
    const gain = frame.story.gains.find((one) => one.forced);
    if (!gain) return;
    const come = agree(gain.forced, "comes", "come");
    const tokens = say`${count(gain.forced, "token")} of ${names(frame, [gain])}`;
    const source = gain.byGrammar ? "grammar, which left no choice" : "tool, not from the model";
    add(10, say`${tokens} ${come} from its ${source}.`);
  },

  joined(frame, add) {
    const { joins } = frame.story;
    if (!joins.length) return;
    const number = sum(joins, (one) => one.blocks.length);
    const use = agree(joins, "it uses", "they use");
    const those = agree(number, "that one", "those");
    const computed = say`${names(frame, joins, 3)} computed ${count(number, "block")}`;
    add(12, say`${computed} that the cache has by now, so ${use} ${those} instead.`);
  },

  finished(frame, add) {
    const { endings } = frame.story;
    const stopped = endings.filter(({ reason }) => reason === "stop");
    const full = endings.filter(({ reason }) => reason === "length");
    const parts = [];
    if (stopped.length)
      parts.push(say`${names(frame, stopped)} ${agree(stopped, "stops", "stop")}`);
    if (full.length) {
      const { maxTokens } = frame.model.requestSpan(full[0].request);
      const limit = `reaches its limit of ${count(maxTokens, "token")}`;
      parts.push(say`${names(frame, full)} ${agree(full, limit, "reach their limits")}`);
    }
    if (parts.length) add(11, say`${list(parts)}.`);
  },

  firstTokens(frame, add) {
    const { gains, forks } = frame.story;
    const forked = new Set(forks.map(({ request }) => request));
    const firsts = gains.filter(({ request, first }) => first && !forked.has(request));
    if (!firsts.length) return;
    const who = names(frame, firsts);
    const tokens = gains.every(({ ids }) => ids.length === 1) ? "token" : "tokens";
    if (firsts.length === 1)
      add(FILLER, say`${who}'s prompt is complete, so it has its first ${tokens}.`);
    else add(FILLER, say`the prompts of ${who} are complete, so each has its first ${tokens}.`);
  },

  routine(frame, add) {
    const { gains } = frame.story;
    if (!gains.length || gains.some(({ ids }) => ids.length > 1)) return;
    const gain = agree(gains, "gains one token", "gain one token each");
    const alone = frame.waiting.length ? "" : "; no request waits";
    add(FILLER + 1, say`${names(frame, gains)} ${gain}${alone}.`);
  },
};

export function names({ model }: Frame, items: (number | { request: number })[], most: number = 4) {
  return list(
    items.map((item) => model.tag(typeof item === "number" ? item : item.request)),
    most,
  );
}

/** What happened to the victims' blocks, each counted once. */
function fates(frame: Frame, losses: Preemption[]) {
  const lost = new Map(losses.flatMap(({ table, seq }) => table.map((block) => [block, seq])));
  const found = [...lost].map(([block, seq]) => frame.fate(block, seq));
  const whose = losses.length === 1 ? "its" : "their";
  const all = lost.size;
  const parts: Span[][] = [];
  const blocksOf = ({ length }: Fate[]) =>
    all === 1 ? `${whose} 1 block` : length < all ? `${length}` : "all";
  const add = (some: Fate[] | undefined, verb: string | Span[]) =>
    some && parts.push(say`${verb} ${blocksOf(some)}`);
  const { others, cached, taken = [], free } = Object.groupBy(found, ({ fate }) => fate);
  add(others, "others keep");
  add(cached, "the cache keeps");
  const takers = Map.groupBy(taken, ({ to }) => to as number);
  if (takers.size > MOST_TAKERS) add(taken, `${takers.size} requests get`);
  else for (const [taker, some] of takers) add(some, say`${names(frame, [taker])} gets`);
  if (free) parts.push(say`${blocksOf(free)} ${agree(free, "is", "are")} free`);
  const words = parts.flatMap((part, index) => (index ? say`, ${part}` : part));
  return all === 1 ? words : say`of ${whose} ${count(all, "block")} ${words}`;
}

/** "waited 4 steps for a seat", or nothing. */
export function waitWords(frame: Frame, id: number) {
  const waited = waitOf(frame, id);
  if (!waited) return "";
  const { model, step } = frame;
  const steps = Array.from({ length: waited }, (_, at) => step - 1 - at);
  const [reason, ...others] = new Set(steps.map((one) => model.waitAt(one, id).reason));
  const waitedFor = !others.length && reasons[String(reason)]?.waited_for;
  const mark = halfDot(model, "waiting_reasons");
  return `waited ${count(waited, "step")}${waitedFor ? ` ${mark}for ${waitedFor}` : ""}`;
}
