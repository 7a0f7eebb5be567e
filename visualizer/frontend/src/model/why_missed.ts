/**
 * Why a request's cached prefix was not longer. `visualizer/reading/why/missed.py` explains the kinds and gives the same
 * answers, which a golden test compares.
 */

import type { Events } from "./events.ts";
import type { NodeState, State } from "./fold.ts";
import { type Fact, type Knowledge, levelOf } from "./knowledge.ts";
import { fill, messages, movedWords } from "./messages.ts";
import type { Model } from "./model.ts";
import type { RequestSpan } from "./request_spans.ts";
import { say } from "./words.ts";

/** counts are of tokens */
interface WhyMissed {
  kind: string;
  request: number;
  step: number | null; // of its admission
  length: number; // of its prompt
  found: number;
  most: number; // largest possible hit
  size: number; // of a block
  about: number | null; // the most similar request, or the one that computed the block
  agree: number; // how many first tokens the two have in common
  texts: [own: string, other: string] | null; // of the first tokens that differ
  group: [name: string, had: number]; // the KV cache group that had least
  evicted: number | null; // the step that evicted the next block
  neededBy: number | null;
  eviction: string; // its reason
  byHash: boolean; // whether only hashes of blocks could be compared
  moved: string; // what the tiers below the GPU had of the rest
  mark: Knowledge;
}

/** hashes stand for unknown tokens */
type Tokens = (number | string)[];

const WORDS = messages.missed as Record<string, string>;
/** Steps with evictions that are searched, and how many steps are folded for that at once. */
const SEARCHED = 1000;
const AT_ONCE = 50;
/** How a kind is known, besides the number of cached tokens. */
const FACT: Record<string, Fact> = {
  evicted: "evictions",
  computing: "scheduled_tokens",
  never_stored: "scheduled_tokens",
};
const BY_TOKENS = new Set(["never_stored", "shorter", "differs", "first", "other_key"]);
const NO_GROUP: [string, number] = ["", 0];
const HAS_ABOUT = new Set(["computing", "never_stored", "shorter", "differs", "other_key"]);

/** The answers about admitted requests, which do not change. */
const known: WeakMap<Model, Map<number, WhyMissed>> = new WeakMap();

export function whyMissed(model: Model, id: number): WhyMissed {
  const answers = known.get(model) ?? new Map();
  known.set(model, answers);
  const answer = answers.get(id) ?? search(model, id);
  if (answer.step !== null) answers.set(id, answer);
  return answer;
}

function search(model: Model, id: number): WhyMissed {
  const root = model.request(model.request(id)?.root);
  const admission = root?.admissions.find(({ resumed }) => !resumed);
  const nothing = { length: 0, found: 0, most: 0, size: 0, about: null, agree: 0, texts: null };
  const none = {
    group: NO_GROUP,
    evicted: null,
    neededBy: null,
    eviction: "",
    byHash: false,
    moved: "",
  };
  if (!root || !admission) {
    const waits = root && (root.arrived !== null || root.segments[0]?.kind === "waiting");
    const kind = waits ? "waiting" : "before";
    return { kind, request: id, step: null, ...nothing, ...none, mark: "recorded" };
  }
  const state = model.stateBefore(admission.seq);
  const size = state.blockSize;
  const own = tokensOf(root, root.promptLength, size);
  const { found, step } = admission;
  const { hits = [] } = [...model.eventsIn(admission.seq, admission.seq)][0] as Events["admitted"];
  const [full = 0, ...others] = hits; // the first group is of full attention
  const least = Math.min(...others);
  const end = found + size;
  const most = Math.floor((own.length - 1) / size) * size;
  const key = `${root.extra_key}`;
  const mayShare = (other: number) => `${model.requestSpan(other).extra_key}` === key;
  let about: number | null = null;
  let agree = longestCached(state, own, key);
  const sharedWith = (other: number) => {
    const { num_computed_tokens, length } = state.request(other);
    const span = model.requestSpan(other);
    const mayHave = num_computed_tokens < end && span.root !== root.id && mayShare(other);
    return mayHave ? commonLength(tokensOf(span, length, size), own) : 0;
  };
  const computing = state.running.find((other) => sharedWith(other) >= end);
  let lost: ReturnType<typeof evictionOf> | undefined;
  let kind: string;
  if (state.settings.prefix_cache === "off") kind = "off";
  else if (isScored(root)) kind = "scored";
  else if (found >= most) kind = "whole";
  else if (state.windowPages && Math.min(agree, most) >= end) {
    kind = "no_window";
    agree = Math.floor(Math.min(agree, most) / size) * size;
  } else if (others.length && found < full) {
    kind = "no_group";
    agree = full;
  } else if (computing !== undefined) {
    kind = "computing";
    about = computing;
    agree = sharedWith(computing);
  } else if ((lost = evictionOf(model, own, key, found, admission.seq))) {
    kind = lost.event ? "evicted" : "far";
  } else if (own.slice(found, end).includes(-1)) kind = "unknown";
  else {
    // Only now, because that reads the tokens of all requests before it.
    const all = [...othersAt(model, root, state, admission.seq)];
    const others = all.filter(([other]) => mayShare(other));
    const [other, alike] = nearest(others, own);
    if (alike >= agree) [about, agree] = [other, alike];
    const length = others.find(([one]) => one === about)?.[1].length;
    if (agree >= end) kind = "never_stored";
    else {
      kind = !agree ? "first" : about !== null && agree === length ? "shorter" : "differs";
      const [stranger, same] = nearest(
        all.filter(([one]) => !mayShare(one)),
        own,
      );
      if (same >= end) [kind, about, agree] = ["other_key", stranger, same];
    }
  }
  const isAbout = HAS_ABOUT.has(kind);
  const differs = kind === "differs" && about !== null && typeof own[agree] === "number";
  const pair = differs ? [root.texts[agree], model.requestSpan(Number(about)).texts[agree]] : [];
  const { needed_by: by = -1, reason = "" } = lost?.event ?? {};
  return {
    kind,
    request: id,
    step,
    length: own.length,
    found,
    most,
    size,
    about: isAbout ? about : null,
    agree: isAbout || kind === "no_window" || kind === "no_group" ? agree : found,
    group:
      kind === "no_group" ? [state.source.groups?.[hits.indexOf(least, 1)] ?? "", least] : NO_GROUP,
    texts: pair[0] && pair[1] ? [pair[0], pair[1]] : null,
    evicted: lost?.event ? lost.step : null,
    neededBy: by < 0 ? null : by,
    eviction: reason,
    byHash: !!root.hashes?.length,
    moved: movedAfter(model, admission, root.id, size),
    mark: missLevel(model, kind, !!root.hashes?.length, by >= 0),
  };
}

/** The request with the longest common prefix, the last of several, and its length. */
function nearest(others: [number, Tokens][], own: Tokens): [number | null, number] {
  let best: number | null = null;
  let length = 0;
  for (const [other, tokens] of others) {
    const common = commonLength(tokens, own);
    if (common && common >= length) [best, length] = [other, common];
  }
  return [best, length];
}

/** What was fetched for a request after its admission. */
function movedAfter(
  model: Model,
  { seq, step }: RequestSpan["admissions"][number],
  id: number,
  size: number,
) {
  if (!model.settings.host_kv_tokens && !model.settings.disk_kv_tokens) return "";
  const events = model.eventsIn(seq + 1, model.stepInfo(step).to);
  return movedWords(
    events.filter((event) => event.type === "blocks_moved"),
    id,
    size,
  );
}

/** The answer in sentences, each a list of spans. */
export function missedWords(model: Model, answer: WhyMissed) {
  const { kind, request, found, length, step, size, agree, about, texts, evicted, neededBy } =
    answer;
  const who = model.tag(request);
  if (kind === "waiting" || kind === "before") return [fill(WORDS[kind], { who })];
  let name = kind;
  if (kind === "evicted" && neededBy === null) name = "evicted_for_unknown";
  if (kind === "evicted" && answer.eviction === "cleared") name = "evicted_cleared";
  if (kind === "no_group" && answer.group[1] > found) name = "no_group_either";
  if (kind === "differs" && about === null) name = "differs_cached";
  if (answer.byHash && (kind === "differs" || kind === "first")) name += "_block";
  const other = kind === "evicted" ? neededBy : about;
  let why = fill(WORDS[name], {
    who: other === null ? "" : model.tag(other),
    size,
    agree,
    range: `${found + 1} to ${found + size}`,
    group: answer.group[0],
    had: answer.group[1],
    evicted: String(evicted),
    position: agree + 1,
    block: `${agree + 1} to ${agree + size}`,
    limit: SEARCHED,
  });
  if (texts) {
    const [one, another] = texts.map((text) => JSON.stringify(text));
    why = say`${why}${fill(WORDS.texts, { own: one, other: another })}`;
  }
  if (answer.mark === "inferred") why = say`${why}${WORDS.inferred}`;
  const said = [fill(WORDS.found, { who, found, length, step: String(step) }), why];
  const { moved } = answer;
  return moved ? [...said, say`${moved[0].toUpperCase() + moved.slice(1)}`] : said;
}

/** The other requests that were admitted before, with their tokens so far. */
function* othersAt(
  model: Model,
  root: RequestSpan,
  state: State,
  seq: number,
): Generator<[number, Tokens]> {
  for (const span of model.requests) {
    const inWindow = span.arrived === null && span.segments[0]?.kind !== "waiting";
    const hasBegun = span.forked || inWindow || span.admissions.some((one) => one.seq < seq);
    if (span.root === root.id || !hasBegun) continue;
    const live = state.requests.get(span.id);
    if (live) yield [span.id, tokensOf(span, live.length, state.blockSize)];
    else if (span.finished && span.finished.seq < seq)
      yield [span.id, tokensOf(span, span.tokens.length, state.blockSize)];
  }
}

function tokensOf({ tokens, hashes }: RequestSpan, length: number, size: number): Tokens {
  return withHashes(tokens.slice(0, length), hashes, 0, size);
}

function withHashes(
  tokens: number[],
  hashes: string[] | undefined,
  from: number,
  size: number,
): Tokens {
  if (!hashes?.length) return tokens;
  return tokens.map((token, index) => hashes[Math.floor((from + index) / size)] ?? token);
}

/** An unknown token, -1, equals no other. */
function commonLength(one: Tokens, other: Tokens) {
  const end = Math.min(one.length, other.length);
  let at = 0;
  while (at < end && one[at] === other[at] && one[at] !== -1) at++;
  return at;
}

function edgeOf(state: State, node: NodeState) {
  return withHashes(state.tokensOf(node), node.content.hashes, node.from, state.blockSize);
}

function pathOf(state: State, id: number) {
  return state
    .path(id)
    .reverse()
    .flatMap((node) => edgeOf(state, node));
}

/** The adapter and salt of the requests that may find a node. */
function keyOf(state: State, id: number) {
  return `${state.path(id).at(-1)?.extra_key ?? []}`;
}

/** The longest prefix of a prompt that is cached, in tokens. */
function longestCached(state: State, own: Tokens, key: string) {
  return state.nodes
    .list()
    .filter(({ id }) => keyOf(state, id) === key)
    .reduce((most, { id }) => Math.max(most, commonLength(pathOf(state, id), own)), 0);
}

/** Whether a prompt is scored, so that the cache was not used. */
const isScored = ({ sampling }: RequestSpan) => sampling.prompt_logprobs != null;

/**
 * The last eviction of the first block that a request did not find; without an event if there are too many steps to
 * search. Undefined if there was none.
 *
 * @param seq of its admission
 */
function evictionOf(
  model: Model,
  own: Tokens,
  key: string,
  found: number,
  seq: number,
): { step: number; event: Events["radix_evicted"] | Events["block_evicted"] | null } | undefined {
  const { measures, firstStep } = model;
  let left = SEARCHED;
  let step = model.stepOf(seq);
  const next = () => {
    while (step >= firstStep && !measures.evicted.at(step - firstStep)) step--;
    return step >= firstStep && left > 0;
  };
  while (next()) {
    const { to } = model.stepInfo(step);
    const least = step - AT_ONCE;
    let first = step;
    for (; next() && step > least; step--, left--) first = step;
    const { from } = model.stepInfo(first);
    const state = model.stateBefore(from);
    let last: ReturnType<typeof evictionOf>;
    for (const event of model.eventsIn(from, Math.min(to, seq - 1))) {
      if (event.type === "radix_evicted" || event.type === "block_evicted")
        if (evicts(state, event, own, key, found)) last = { step: state.step, event };
      state.apply(event);
    }
    if (last) return last;
  }
  return step < firstStep ? undefined : { step, event: null };
}

/** Whether an eviction removes the block of a prompt that begins at a token. */
function evicts(
  state: State,
  event: Events["radix_evicted"] | Events["block_evicted"],
  own: Tokens,
  key: string,
  at: number,
) {
  const node = state.node(event.node);
  if (keyOf(state, event.node) !== key) return false;
  if (event.type === "block_evicted" && node.blocks.length + node.copies.length > 1) return false;
  const path = pathOf(state, event.node);
  const stays = path.length - edgeOf(state, node).length;
  return stays <= at && commonLength(path, own) >= at + state.blockSize;
}

/** Hashes are of prompts only: what continues an output cannot be recognized. */
function missLevel(model: Model, kind: string, hasHashes: boolean, hasCause: boolean): Knowledge {
  if (kind === "unknown") return "unknown";
  const facts: Fact[] = ["cached_tokens", ...(FACT[kind] ? [FACT[kind]] : [])];
  if (hasCause) facts.push("eviction_causes");
  const level = levelOf(model, facts);
  return level === "recorded" && hasHashes && BY_TOKENS.has(kind) ? "inferred" : level;
}
