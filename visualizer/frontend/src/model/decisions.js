/**
 * The scheduler's decisions of a step, in order and in words; and what the commit and the time before the
 * step brought.
 *
 * The log gives rows, preemptions, admissions and evictions as separate events. Here they are put back into
 * the order in which requests were asked: running ones by admission, then the queue.
 *
 * @typedef {import("./words.js").Span} Span
 *
 * @typedef {object} Decision
 * @property {string} kind
 * @property {number | null} request
 * @property {number[]} [requests]  all whom one line is about
 * @property {Span[]} spans
 * @property {number} [tokens]      computed for it
 * @property {number} [left]        of the budget, after it
 * @property {number} seq           the event that says so
 * @property {boolean} hot          the event of the moment
 */

import { blockList, bold, count, its, list, say } from "./words.js";

/** What a learner should look at first, if a step has it. */
const HOT = ["preempted", "evicting", "hit", "admitted", "copying", "stalled", "waits"];

/** @param {import("./frame.js").Frame} frame @returns {Decision[]} */
export function decisions(frame) {
  const { story } = frame;
  /** @type {(Decision & {heat?: string})[]} */
  const made = story.evictions.filter(({ neededBy }) => neededBy < 0).map((one) => cleared(one));
  let left = frame.budget.budget;
  for (const id of asked(story)) {
    for (const one of story.preemptions) if (one.by === id) made.push(preempted(frame, one));
    const admission = story.admissions.find(({ request }) => request === id);
    if (admission) made.push(admitted(frame, admission));
    const row = story.rows.find(({ request }) => request === id);
    if (row) made.push(scheduled(frame, row, (left -= row.count)));
    const stalled = story.stalled.find(({ request }) => request === id);
    if (stalled) made.push(passedOver(stalled));
  }
  made.push(...waiting(frame));
  const heat = HOT.find((kind) => made.some((one) => (one.heat ?? one.kind) === kind));
  const hottest = made.find((one) => (one.heat ?? one.kind) === heat);
  return made.map((one) => {
    const { heat: _, ...decision } = one;
    return { ...decision, hot: one === hottest };
  });
}

/** Everybody who was asked, in order. @param {import("./story.js").Story} story @returns {number[]} */
function asked({ rows, running, admissions }) {
  const order = [...running, ...admissions.map(({ request }) => request)];
  const scheduled = rows.map(({ request }) => request);
  // Rows are in the order of asking. Should a scheduler go through them in another, it is right.
  const sorted = order.filter((id) => scheduled.includes(id));
  if (sorted.every((id, index) => id === scheduled[index])) return order;
  return [...new Set([...scheduled, ...order])];
}

function cleared(/** @type {import("./story.js").Eviction} */ { blocks, seq }) {
  const spans = say`the cache is cleared: ${count(blocks.length, "block")} nobody used ${blocks.length === 1 ? "is" : "are"} free`;
  return { kind: "evicted", request: null, spans, seq, hot: false };
}

/** @param {import("./frame.js").Frame} frame @param {import("./story.js").Preemption} loss */
function preempted(frame, loss) {
  const { request, by, free, evictable, computed, seq } = loss;
  const need = needOf(frame, loss);
  const self = request === by;
  const who = self ? say`it` : say`${frame.model.tag(by)}`;
  const why = say`${who} needs ${count(need, "block")}, ${free} free, ${evictable} to evict`;
  const choice = whyVictim(frame, loss);
  const kept = Math.min(frame.path(request).tokens, computed);
  const rest = say`Of its ${count(computed, "computed token")}, ${kept || "none"} ${kept === 1 ? "is" : kept ? "are" : "is"} still cached.`;
  const spans = say`${bold(say`preempted`)}: ${why}${choice ? say`; ${choice}` : ""}. ${rest}`;
  return { kind: "preempted", request, spans, seq, hot: false };
}

/**
 * How many blocks the one that preempts needs, as the scheduler counts it at that moment: enough for the
 * tokens it was going to be given, and one more if it has to copy a shared block.
 *
 * @param {import("./frame.js").Frame} frame
 * @param {import("./story.js").Preemption} loss
 */
export function needOf({ story, state, budget }, { by, want, refunded }) {
  const row = story.rows.find(({ request }) => request === by);
  let tokens = row && row.count - row.drafts.length;
  if (tokens === undefined) {
    const order = asked(story);
    const earlier = story.rows.filter(({ request }) => order.indexOf(request) < order.indexOf(by));
    const given = earlier.reduce((sum, { count: number }) => sum + number, 0);
    tokens = Math.min(want.uncomputed, budget.budget - given - refunded);
  }
  const blocks = Math.ceil((want.computed + tokens) / state.blockSize) - want.blocks;
  return blocks + Number(want.writesShared);
}

/**
 * Why this victim, for the policies whose rule is known. What it says is checked against the state: a victim
 * that the rule would not have chosen gets no reason.
 *
 * @param {import("./frame.js").Frame} frame
 * @param {import("./story.js").Preemption} loss
 * @returns {Span[] | null}
 */
function whyVictim({ model }, { request, by, running }) {
  const name = request === by ? say`it` : say`${model.tag(request)}`;
  const { policy } = model.classes;
  if (running.length === 1) return say`nobody else runs`;
  if (["Policy", "Fcfs", "ShortestJobFirst", "LongestPrefixMatch"].includes(policy)) {
    return running.at(-1) === request ? say`${name} came last` : null;
  }
  if (policy !== "Priority") return null;
  const priority = (/** @type {number} */ id) => model.request(id).priority;
  const others = running.filter((id) => id !== request);
  if (others.every((id) => priority(id) < priority(request))) return say`${name} is the least urgent`;
  const last = others.every(
    (id) => priority(id) < priority(request) || (priority(id) === priority(request) && id < request),
  );
  return last ? say`of the least urgent ${name} came last` : null;
}

/** @param {import("./frame.js").Frame} frame @param {import("./story.js").Admission} admission */
function admitted({ model, step }, { request, found, length, resumed, seq }) {
  const waited = waitOf(model.request(request), step);
  const after = waited ? ` after ${count(waited, "step")}` : "";
  const hit = found ? `${found} of its ${length} tokens are cached` : "nothing of it is cached";
  const spans = say`${resumed ? "resumes" : "admitted"}${after}: ${hit}`;
  return { kind: "admitted", request, spans, seq, hot: false, heat: found ? "hit" : "admitted" };
}

/** Steps that a request had waited when it was admitted. */
export function waitOf(/** @type {import("./lives.js").Life} */ life, /** @type {number} */ step) {
  const wait = life.segments.findLast(
    ({ kind, to }) => (kind === "waiting" || kind === "preempted") && to === step - 1,
  );
  return wait ? step - wait.from : 0;
}

/**
 * @param {import("./frame.js").Frame} frame
 * @param {import("./story.js").Row} row
 * @param {number} left
 */
function scheduled({ model, story }, row, left) {
  const { request, start, count: tokens, drafts, kind, prompt, length, seq } = row;
  const end = start + tokens - drafts.length;
  const parts = [];
  if (kind === "decode") parts.push(say`decode`);
  else {
    const verb = kind === "prefill" ? "prefill" : "catches up";
    const tail = end < length ? `, ${length - end} left for later` : "";
    const what = end - start === 1 ? `token ${end}` : `tokens ${start + 1} to ${end}`;
    parts.push(say`${verb}, ${what} of ${kind === "prefill" && end <= prompt ? prompt : length}${tail}`);
  }
  if (drafts.length) parts.push(say`checks ${count(drafts.length, "draft")}`);
  const evictions = story.evictions.filter(({ neededBy }) => neededBy === request);
  const evicted = evictions.flatMap(({ blocks }) => blocks);
  if (evicted.length) parts.push(say`evicting ${blockList(evicted)} for room`);
  const copy = story.copies.find((one) => one.request === request);
  if (copy) {
    const with_ = copy.sharers.length ? say`, shared with ${list(copy.sharers.map((id) => model.tag(id)))}` : "";
    parts.push(say`copying block ${copy.source}${with_}, to ${copy.block}`);
  }
  const taken = story.takenBy(request);
  for (const loss of story.preemptions.filter(({ by }) => by === request)) {
    const into = taken.filter((block) => loss.table.includes(block));
    if (!into.length) continue;
    parts.push(say`into ${model.tag(loss.request)}'s ${blockList(into)}`);
  }
  const spans = parts.flatMap((part, index) => (index ? say`, ${part}` : part));
  const heat = evicted.length ? "evicting" : copy ? "copying" : kind;
  return { kind, request, spans, tokens, left, seq, hot: false, heat };
}

function passedOver(/** @type {{request: number, seq: number}} */ { request, seq }) {
  const spans = say`gets nothing: the budget is spent`;
  return { kind: "stalled", request, spans, left: 0, seq, hot: false };
}

/** Who waits, one line for each reason. @param {import("./frame.js").Frame} frame */
function waiting(frame) {
  const { story, model } = frame;
  /** @type {Map<string, {reason: string, head: number, requests: number[]}>} */
  const groups = new Map();
  for (const request of story.waiting) {
    const { reason, head } = frame.waitOf(request);
    if (!reason) continue;
    const own = head === request;
    const key = own ? reason : `behind ${head}`;
    const group = groups.get(key) ?? { reason, head, requests: [] };
    groups.set(key, group);
    group.requests.push(request);
  }
  const lines = [...groups.values()].sort(
    (a, b) => Number(!a.requests.includes(a.head)) - Number(!b.requests.includes(b.head)),
  );
  return lines.map(({ reason, head, requests }) => {
    const verb = requests.length === 1 ? "waits" : "wait";
    const own = reason === story.blocked?.reason ? frame.obstacle : "the policy put it off";
    const spans = requests.includes(head)
      ? say`${verb}: ${own}`
      : say`${verb} behind ${model.tag(head)}`;
    const [request] = requests;
    return { kind: "waits", request, requests, spans, seq: model.span(frame.step).scheduled, hot: false };
  });
}

/** @param {import("./frame.js").Frame} frame @returns {Decision[]} */
export function outcomes(frame) {
  const { model, story } = frame;
  const arrived = story.arrived.map((request) => ({
    kind: "arrived",
    request,
    spans: say`arrives with ${count(model.request(request).promptLength, "prompt token")}`,
    seq: frame.events.from,
    hot: false,
  }));
  const forked = story.forks.map(({ request, parent, blocks, seq }) => ({
    kind: "forked",
    request,
    spans: say`is another sample of ${model.tag(parent)}'s prompt and shares ${its(blocks, "block")}`,
    seq,
    hot: false,
  }));
  const joined = story.joins.map(({ request, blocks, seq }) => ({
    kind: "joined",
    request,
    spans: say`computed ${count(blocks.length, "block")} that the cache has by now, and uses those: ${blockList(blocks)}`,
    seq,
    hot: false,
  }));
  const ended = story.endings.map((ending) => ({
    kind: ending.reason === "abort" ? "aborted" : "finished",
    request: ending.request,
    spans: endingWords(frame, ending),
    seq: ending.seq,
    hot: false,
  }));
  const before = ended.filter(({ kind }) => kind === "aborted");
  const after = ended.filter(({ kind }) => kind !== "aborted");
  return [...arrived, ...before, ...forked, ...joined, ...after];
}

/** @param {import("./frame.js").Frame} frame @param {import("./story.js").Ending} ending */
function endingWords(frame, { request, reason, message, table, seq }) {
  const { maxTokens } = frame.model.request(request);
  const output = frame.model.request(request).tokenSteps.filter((at) => at <= frame.step).length;
  const verb =
    reason === "abort"
      ? "was aborted"
      : reason === "error"
        ? `ends: ${message}`
        : reason === "length"
          ? `reaches its limit of ${count(maxTokens, "token")}`
          : `stops after ${count(output, "token")}`;
  const cached = table.filter((block) => frame.fate(block, seq).fate === "cached").length;
  const all = its(table.length, "block");
  const kept = cached ? `; the cache keeps ${cached === table.length ? "" : `${cached} of `}${all}` : "";
  return say`${verb}${kept}`;
}
