/**
 * The one sentence of a step: what was computed, then what is worth saying, most important first, as much as
 * two lines hold. It says nothing the frame does not show: counts come from the same lists.
 *
 * @typedef {import("./words.js").Span} Span
 * @typedef {{rank: number, spans: Span[]}} Clause  smaller ranks are more important
 * @typedef {import("./frame.js").Frame} Frame
 */

import { needOf, waitOf } from "./decisions.js";
import { are, bold, capital, count, inWords, its, list, plain, say, some } from "./words.js";

/** Letters that fit into two lines at 1280 px; a name's swatch counts as two. */
const ROOM = 240;
const MOST_CLAUSES = 3;
/** Clauses from here on are said only where there is nothing better to say. */
const FILLER = 20;

/**
 * @param {import("./model.js").Model} model
 * @param {number} step
 * @returns {Span[]}
 */
export function sentence(model, step) {
  const frame = model.frame(step);
  const lead = bold(opening(frame));
  const clauses = CLAUSES.flatMap((tell, order) =>
    tell(frame).map((clause) => ({ ...clause, order })),
  );
  const ranked = clauses.toSorted((a, b) => a.rank - b.rank);
  const chosen = [];
  let room = ROOM - width(lead);
  for (const clause of ranked) {
    if (chosen.length === MOST_CLAUSES || (clause.rank >= FILLER && chosen.length)) break;
    const fits = width(clause.spans) + 1 <= room;
    if (!fits && chosen.length) continue;
    chosen.push(clause);
    room -= width(clause.spans) + 1;
  }
  const told = clauses.filter((clause) => chosen.includes(clause));
  return told.reduce((spans, clause) => say`${spans} ${capital(clause.spans)}`, lead);
}

/** @param {Span[]} spans */
function width(spans) {
  return plain(spans).length + 2 * spans.filter((span) => span.request !== undefined).length;
}

// The lead: how many tokens of what

/** @param {Frame} frame @returns {Span[]} */
function opening({ model, step, status, story, budget, running, waiting }) {
  if (!story.scheduled) {
    if (status === "pending") return say`Step ${step} has not begun.`;
    if (status === "running") return say`Step ${step} is being scheduled.`;
    const waits = waiting.length ? ` and ${waiting.length} waiting` : "";
    return say`Step ${step}: the log begins here, with ${count(running.length, "request")} running${waits}.`;
  }
  const computed = `${budget.tokens} of ${count(budget.budget, "token")}`;
  if (!story.rows.length) return say`Step ${step}: nothing is computed.`;
  return say`Step ${step}: ${list(work(model, story.rows))}, ${computed}.`;
}

/**
 * @param {import("./model.js").Model} model
 * @param {import("./story.js").Row[]} rows
 */
function work(model, rows) {
  const parts = [];
  const decodes = rows.filter(({ kind }) => kind === "decode");
  const drafts = rows.reduce((sum, row) => sum + row.drafts.length, 0);
  if (decodes.length) parts.push(say`${count(decodes.length, "decode")}`);
  const end = (/** @type {import("./story.js").Row} */ row) => row.start + row.count - row.drafts.length;
  const prompts = rows.filter((row) => row.kind === "prefill" && end(row) <= row.prompt);
  const others = rows.filter((row) => row.kind !== "decode" && !prompts.includes(row));
  const sum = (/** @type {typeof rows} */ some_) =>
    some_.reduce((total, row) => total + row.count - row.drafts.length, 0);
  if (prompts.length) {
    const whose = whoseOf(model, prompts);
    const noun = prompts.length === 1 ? "prompt" : "prompts";
    parts.push(say`${count(sum(prompts), "token")} of ${whose} ${noun}`);
  }
  if (others.length) {
    const names = list(others.map(({ request }) => model.tag(request)), 2);
    parts.push(say`${count(sum(others), "token")} for ${names} to catch up`);
  }
  if (drafts) parts.push(say`${count(drafts, "draft")} to check`);
  return parts;
}

/** "r1's", "r1's and r2's", "4". */
function whoseOf(
  /** @type {import("./model.js").Model} */ model,
  /** @type {import("./story.js").Row[]} */ rows,
) {
  if (rows.length > 2) return say`${rows.length}`;
  return list(rows.map(({ request }) => say`${model.tag(request)}'s`));
}

// The clauses, in the order in which they are told

/** @type {((frame: Frame) => Clause[])[]} */
const CLAUSES = [
  aborted,
  cleared,
  preempted,
  resumed,
  admitted,
  cut,
  evicted,
  copied,
  stalled,
  waiting,
  emptyPlaces,
  drafted,
  failed,
  forked,
  forced,
  joined,
  finished,
  firstTokens,
  routine,
];

/** @param {Frame} frame @param {number[]} ids @param {number} [most] */
function names({ model }, ids, most = 4) {
  return list(
    ids.map((id) => model.tag(id)),
    most,
  );
}

/** @param {Frame} frame */
function aborted(frame) {
  const ids = frame.story.endings.filter(({ reason }) => reason === "abort").map((one) => one.request);
  if (!ids.length) return [];
  return [{ rank: 4, spans: say`${names(frame, ids)} ${ids.length === 1 ? "was" : "were"} aborted.` }];
}

/** @param {Frame} frame */
function cleared({ story }) {
  const blocks = story.evictions
    .filter(({ neededBy }) => neededBy < 0)
    .reduce((sum, one) => sum + one.blocks.length, 0);
  if (!blocks) return [];
  return [{ rank: 2, spans: say`The cache is cleared of the ${some(blocks, "block")} nobody used.` }];
}

/** @param {Frame} frame @returns {Clause[]} */
function preempted(frame) {
  const { story, model } = frame;
  /** @type {Map<number, import("./story.js").Preemption[]>} */
  const groups = new Map();
  for (const one of story.preemptions) groups.set(one.by, [...(groups.get(one.by) ?? []), one]);
  return [...groups].map(([by, losses], index) => {
    const [first] = losses;
    const need = needOf(frame, first);
    const victims = losses.map(({ request }) => request);
    const others = victims.filter((id) => id !== by);
    const are_ = others.length === 1 ? "is" : "are";
    const self = others.length < victims.length;
    const gone = others.length
      ? say`${names(frame, others)} ${are_} preempted${self ? say`, and then ${model.tag(by)} itself` : ""}`
      : say`it is preempted itself`;
    if (index) return { rank: 2, spans: say`${model.tag(by)} needs ${some(need, "block")}, too, so ${gone}.` };
    const lack = say`${model.tag(by)} needs ${some(need, "block")} and ${supply(first)}, so ${gone}`;
    // When a sharer leaves, the copy that was needed before is needed no more.
    const spared = !self && first.want.writesShared && story.takenBy(by).length < need;
    const end = spared ? say`, and ${model.tag(by)} need not copy any more` : "";
    return { rank: 1, spans: say`${lack}: ${fates(frame, losses)}${end}.` };
  });
}

/** @param {{free: number, evictable: number}} supply */
function supply({ free, evictable }) {
  if (!free && !evictable) return "none is left";
  const parts = [];
  if (free) parts.push(`${are(free)} free`);
  if (evictable) parts.push(`${evictable} can be evicted`);
  return `only ${parts.join(" and ")}`;
}

/**
 * What became of the victims' blocks, each counted once.
 *
 * @param {Frame} frame
 * @param {import("./story.js").Preemption[]} losses
 */
export function fates(frame, losses) {
  const { model } = frame;
  const lost = new Map(losses.flatMap(({ table, seq }) => table.map((block) => [block, seq])));
  const fates_ = [...lost].map(([block, seq]) => frame.fate(block, seq));
  const whose = losses.length === 1 ? "its" : "their";
  const one = lost.size === 1;
  const takers = [...new Set(fates_.flatMap(({ to }) => to ?? []))];
  /** @type {[number, (blocks: string) => Span[]][]} */
  const parts = [
    [fates_.filter(({ fate }) => fate === "others").length, (blocks) => say`others keep ${blocks}`],
    [fates_.filter(({ fate }) => fate === "cached").length, (blocks) => say`the cache keeps ${blocks}`],
    ...takers.map((taker) => [
      fates_.filter(({ to }) => to === taker).length,
      (/** @type {string} */ blocks) => say`${model.tag(taker)} takes ${blocks}`,
    ]),
    [
      fates_.filter(({ fate }) => fate === "free").length,
      (blocks) => say`${blocks} ${blocks === "1" || one ? "is" : "are"} free`,
    ],
  ];
  const told = parts.filter(([number]) => number);
  if (one) return told[0][1](`${whose} one block`);
  const words = told.map(([number, tell]) => tell(number === lost.size ? "all" : String(number)));
  const joined_ = words.flatMap((part, index) => (index ? say`, ${part}` : part));
  return say`of ${whose} ${count(lost.size, "block")} ${joined_}`;
}

/** @param {Frame} frame @returns {Clause[]} */
function resumed({ model, story, step }) {
  return story.admissions
    .filter((one) => one.resumed)
    .map(({ request, found, length }, index) => {
      const life = model.request(request);
      const waited = waitOf(life, step);
      const after = waited ? ` after ${inWords(waited)} step${waited === 1 ? "" : "s"}` : "";
      // Tokens that had been computed before any of its preemptions.
      const once = life.preemptions.filter((one) => one.step < step).map((one) => one.computed);
      const again = Math.max(0, Math.min(length, Math.max(0, ...once)) - found);
      const have = `${again === 1 ? "has" : "have"} to be computed again`;
      const hit = found
        ? `: ${found} of its ${count(length, "token")} ${found === 1 ? "is" : "are"} in the cache${again ? `, ${again} ${have}` : ""}`
        : again
          ? `; ${its(again, "computed token")} ${have}`
          : "";
      return { rank: 3 + index, spans: say`${model.tag(request)} resumes${after}${hit}.` };
    });
}

/** What somebody waited for, if it was one thing all the time. @type {Record<string, string>} */
const WAITED_FOR = {
  batch_full: " for a place",
  no_free_blocks: " for memory",
  reserved_blocks: " for memory",
  token_budget: " for room in the budget",
  static_batch: " for the batch to end",
};

/** @param {Frame} frame @returns {Clause[]} */
function admitted({ model, story, step }) {
  const fresh = story.admissions.filter((one) => !one.resumed);
  const waited = (/** @type {number} */ id) => waitOf(model.request(id), step);
  const told = fresh.filter(({ request, found }) => found || waited(request));
  const waiting_ = (/** @type {number} */ id) => {
    const steps = waited(id);
    if (!steps) return say`start`;
    return say`waited ${inWords(steps)} step${steps === 1 ? "" : "s"}${waitedFor(model, id, step)}`;
  };
  if (told.length > 2) {
    const waits = new Set(told.map(({ request }) => `${waited(request)}${waitedFor(model, request, step)}`));
    const who = list(told.map(({ request }) => model.tag(request)));
    const found = told.reduce((sum, one) => sum + one.found, 0);
    const length = told.reduce((sum, one) => sum + one.length, 0);
    const hit = found ? `; ${found} of their ${length} prompt tokens were in the cache` : "";
    const [first] = told;
    const how = waits.size === 1 ? waiting_(first.request) : say`start`;
    return [{ rank: 5, spans: say`${who} ${how}${hit}.` }];
  }
  return told.map(({ request, found, length }, index) => {
    const name = model.tag(request);
    const steps = waited(request);
    const hit = (/** @type {Span[]} */ whose) =>
      say`${found} of ${whose} ${length} prompt tokens ${found === 1 ? "was" : "were"} in the cache`;
    if (!steps) return { rank: 5 + index, spans: say`${hit(say`${name}'s`)}.` };
    const wait = say`${name} ${waiting_(request)}`;
    return { rank: 5 + index, spans: found ? say`${wait}; ${hit(say`its`)}.` : say`${wait}.` };
  });
}

function waitedFor(
  /** @type {import("./model.js").Model} */ model,
  /** @type {number} */ id,
  /** @type {number} */ step,
) {
  const life = model.request(id);
  const wait = life.segments.findLast(({ kind, to }) => kind === "waiting" && to === step - 1);
  if (!wait) return "";
  const reasons = new Set(model.waits(life, wait).map(({ reason }) => reason));
  return reasons.size === 1 ? (WAITED_FOR[[...reasons][0]] ?? "") : "";
}

/** A request of which the budget leaves tokens for later. @param {Frame} frame @returns {Clause[]} */
function cut({ model, story }) {
  const end = (/** @type {import("./story.js").Row} */ row) => row.start + row.count - row.drafts.length;
  const row = story.rows.find((one) => end(one) < one.length);
  if (!row) return [];
  const name = model.tag(row.request);
  const left = row.length - end(row);
  const spans =
    end(row) < row.prompt && row.length === row.prompt
      ? say`The budget cuts ${name}'s prompt: ${left} of ${count(row.prompt, "token")} ${left === 1 ? "is" : "are"} left for later.`
      : say`The budget leaves ${count(left, "token")} of ${name} for later.`;
  return [{ rank: 9, spans }];
}

/** @param {Frame} frame @returns {Clause[]} */
function evicted(frame) {
  const { story, model, step } = frame;
  // What a victim leaves in the cache may be evicted at once; its fate has been told.
  const lost = new Set(story.preemptions.flatMap(({ table }) => table));
  const made = story.evictions.filter(
    ({ neededBy, blocks }) => neededBy >= 0 && !blocks.every((block) => lost.has(block)),
  );
  const needers = [...new Set(made.map(({ neededBy }) => neededBy))];
  if (!needers.length) return [];
  const blocks = made.reduce((sum, one) => sum + one.blocks.length, 0);
  const since = new Set(made.map((one) => one.since));
  const [used] = since;
  const age = since.size === 1 && used !== null && used < step ? `, unused since step ${used},` : "";
  const gone =
    made.length === 1
      ? `a leaf of ${count(blocks, "cached block")}${age} is evicted`
      : `${made.length} leaves with ${count(blocks, "cached block")}${age} are evicted`;
  if (needers.length > 1) {
    return [{ rank: 7, spans: say`For ${names(frame, needers)}, ${gone}.` }];
  }
  const [by] = needers;
  const need = story.takenBy(by).length;
  const lack = say`${model.tag(by)} needs ${some(need, "block")} and ${are(made[0].free)} free`;
  return [{ rank: 7, spans: say`${lack}, so ${gone}.` }];
}

/** @param {Frame} frame @returns {Clause[]} */
function copied(frame) {
  const { copies } = frame.story;
  if (!copies.length) return [];
  if (copies.length > 1) {
    const where = list(copies.map(({ source, block }) => `${source} to ${block}`));
    const who = names(frame, copies.map(({ request }) => request));
    return [{ rank: 8, spans: say`${who} write into blocks that others share, so those are copied: ${where}.` }];
  }
  const [{ request, source, block, sharers }] = copies;
  const with_ = sharers.length ? say`${names(frame, sharers)}` : say`others`;
  return [
    {
      rank: 8,
      spans: say`${frame.model.tag(request)} writes into a block it shares with ${with_}, so block ${source} is copied to ${block}.`,
    },
  ];
}

/** @param {Frame} frame @returns {Clause[]} */
function drafted({ story }) {
  const drafts = story.rows.reduce((sum, row) => sum + row.drafts.length, 0);
  if (!drafts || !story.gains.length) return [];
  const accepted = story.gains.reduce((sum, one) => sum + one.accepted, 0);
  const spans =
    drafts === 1
      ? say`The draft is ${accepted ? "accepted" : "rejected"}.`
      : say`Of ${drafts} drafts ${are(accepted)} accepted.`;
  return [{ rank: 10, spans }];
}

/** @param {Frame} frame @returns {Clause[]} */
function failed(frame) {
  const ends = frame.story.endings.filter(({ reason }) => reason === "error");
  if (!ends.length) return [];
  const who = names(frame, ends.map(({ request }) => request));
  const letters = [...ends[0].message.replace(/\s+/g, " ")];
  const message = letters.length > 60 ? `${letters.slice(0, 59).join("")}…` : letters.join("");
  const why = message ? ` (${message})` : "";
  return [{ rank: 0, spans: say`The forward pass fails${why}, and ${who} end${ends.length === 1 ? "s" : ""} with it.` }];
}

/** @param {Frame} frame @returns {Clause[]} */
function forked(frame) {
  const parents = [...new Set(frame.story.forks.map(({ parent }) => parent))];
  return parents.slice(0, 1).map((parent) => {
    const forks = frame.story.forks.filter((one) => one.parent === parent);
    const who = names(frame, forks.map(({ request }) => request));
    const what = forks.length === 1 ? "is another sample of it and shares" : "are more samples of it and share";
    return {
      rank: 6,
      spans: say`${frame.model.tag(parent)}'s prompt is complete; ${who} ${what} ${its(forks[0].blocks, "block")}.`,
    };
  });
}

/** @param {Frame} frame @returns {Clause[]} */
function forced({ story, model }) {
  return story.gains
    .filter((one) => one.forced)
    .slice(0, 1)
    .map((one) => ({
      rank: 10,
      spans: say`${count(one.forced, "token")} of ${model.tag(one.request)} ${one.forced === 1 ? "comes" : "come"} from its tool, not from the model.`,
    }));
}

/** @param {Frame} frame @returns {Clause[]} */
function joined(frame) {
  const { joins } = frame.story;
  if (!joins.length) return [];
  const who = names(frame, joins.map(({ request }) => request), 3);
  const blocks = joins.reduce((sum, one) => sum + one.blocks.length, 0);
  const one = joins.length === 1;
  return [
    {
      rank: 12,
      spans: say`${who} computed ${count(blocks, "block")} that the cache has by now, and use${one ? "s" : ""} the cache's.`,
    },
  ];
}

/** @param {Frame} frame @returns {Clause[]} */
function finished(frame) {
  const { endings } = frame.story;
  const by = (/** @type {string} */ reason) =>
    endings.filter((one) => one.reason === reason).map(({ request }) => request);
  const stopped = by("stop");
  const full = by("length");
  if (!stopped.length && !full.length) return [];
  const parts = [];
  if (stopped.length) parts.push(say`${names(frame, stopped)} ${stopped.length === 1 ? "stops" : "stop"}`);
  if (full.length === 1) {
    const { maxTokens } = frame.model.request(full[0]);
    parts.push(say`${names(frame, full)} reaches its limit of ${count(maxTokens, "token")}`);
  } else if (full.length) parts.push(say`${names(frame, full)} reach their limits`);
  return [{ rank: 11, spans: say`${list(parts)}.` }];
}

/** @param {Frame} frame @returns {Clause[]} */
function stalled(frame) {
  const ids = frame.story.stalled.map(({ request }) => request);
  if (!ids.length) return [];
  const verb = ids.length === 1 ? "runs but gets" : "run but get";
  return [{ rank: 10, spans: say`${names(frame, ids)} ${verb} nothing: the budget is spent.` }];
}

/** @param {Frame} frame @returns {Clause[]} */
function waiting(frame) {
  const { story, model, status } = frame;
  if (!story.scheduled) {
    const ids = frame.waiting;
    if (!ids.length || status === "joined") return [];
    return [{ rank: 6, spans: say`${names(frame, ids)} wait${ids.length === 1 ? "s" : ""}.` }];
  }
  const { blocked } = story;
  if (!blocked) return [];
  // Whoever was preempted in this step waits, too, but that has been said.
  const victims = new Set(story.preemptions.map(({ request }) => request));
  const ids = story.waiting.filter((id) => !victims.has(id));
  const own = ids.filter((id) => frame.waitOf(id).head === id);
  const behind = ids.filter((id) => frame.waitOf(id).head === blocked.request && id !== blocked.request);
  if (!own.length) return [];
  const rest = behind.length
    ? say`; ${names(frame, behind, 3)} wait${behind.length === 1 ? "s" : ""} behind ${own.length === 1 ? "it" : model.tag(blocked.request)}`
    : "";
  const verb = own.length === 1 ? "waits" : "wait";
  return [{ rank: 6, spans: say`${names(frame, own)} ${verb}: ${frame.obstacle}${rest}.` }];
}

/** Static batching: places that nobody may take. @param {Frame} frame @returns {Clause[]} */
function emptyPlaces({ story, state }) {
  const { max_batch_size: places } = state.settings;
  const empty = places - story.places;
  if (story.blocked?.reason !== "static_batch" || empty < 1) return [];
  const spans = say`${inWords(empty)} of ${inWords(places)} places ${empty === 1 ? "is" : "are"} empty.`;
  return [{ rank: 7, spans }];
}

/** @param {Frame} frame @returns {Clause[]} */
function firstTokens(frame) {
  const { story } = frame;
  const gained = new Set(story.gains.map(({ request }) => request));
  const ids = story.rows
    .filter((row) => row.kind === "prefill" && row.length === row.prompt && gained.has(row.request))
    .map(({ request }) => request);
  if (!ids.length) return [];
  const tokens = story.gains.every((one) => one.ids.length === 1) ? "token" : "tokens";
  const what =
    ids.length === 1
      ? say`${names(frame, ids)}'s prompt is complete, so it has its first ${tokens}`
      : say`the prompts of ${names(frame, ids)} are complete, so each has its first ${tokens}`;
  return [{ rank: FILLER, spans: say`${what}.` }];
}

/** @param {Frame} frame @returns {Clause[]} */
function routine(frame) {
  const { story, waiting: waits } = frame;
  const ids = story.gains.map(({ request }) => request);
  const alone = waits.length ? "" : "; nobody waits";
  if (!ids.length) return [];
  const each = ids.length === 1 ? say`gains one token` : say`gain one token each`;
  const single = story.gains.every((one) => one.ids.length === 1);
  if (!single) return [];
  return [{ rank: FILLER + 1, spans: say`${names(frame, ids)} ${each}${alone}.` }];
}
