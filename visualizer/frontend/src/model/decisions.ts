/**
 * The scheduler's decisions of a step, in order and in words; and the outcomes: what happened before the
 * step and in its commit.
 *
 * The log gives rows, preemptions, admissions and evictions as separate events. Here they are sorted by the
 * request that caused them: running requests in order of admission, then the queue.
 */

import { adapterWords, slotWords } from "./adapters.ts";
import type { Frame } from "./frame.ts";
import { halfDot, isSecret, lacks } from "./knowledge.ts";
import {
  adoptedWords,
  fill,
  messages,
  movedWords,
  rowWords,
  stalledWords,
  supply,
  wastedWords,
} from "./messages.ts";
import type { Model } from "./model.ts";
import { rowWasted, waitIn } from "./request_spans.ts";
import type { Admission, Ending, Eviction, Preemption, Row, Story } from "./story.ts";
import {
  agree,
  blockList,
  clearedWords,
  count,
  list,
  plain,
  type Span,
  say,
  sum,
} from "./words.ts";

export interface Decision {
  kind: string;
  request: number | null;
  requests?: number[]; // all requests of a line about several
  spans: Span[];
  tokens?: number; // computed for it
  plain?: boolean; // it decodes one token, and there is nothing else to say
  left?: number; // of the budget, after it
  seq: number; // the event that says so
  hot: boolean; // the most important line of the step
  heat?: string; // its rank; see HOT
}

/** What a learner should look at first, most important first. */
const HOT = ["preempted", "evicting", "hit", "admitted", "copying", "stalled", "waits"];

function line(
  { request, seq }: { request: number | null; seq: number },
  kind: string,
  spans: Span[],
  more: Partial<Decision> = {},
): Decision {
  return { kind, request, spans, seq, hot: false, heat: kind, ...more };
}

export function decisions(frame: Frame): Decision[] {
  const { story } = frame;
  const made = story.evictions.filter(({ reason }) => reason === "cleared").map(cleared);
  const unexplained = story.evictions.filter(
    ({ reason, neededBy }) => reason === "room" && neededBy < 0,
  );
  if (unexplained.length) made.push(evicted(unexplained));
  const { budget } = frame.budget;
  let left = budget;
  const ofRequest = ({ request }: { request: number }) => request;
  const losses = Map.groupBy(story.preemptions, ({ by }) => by);
  const admissions = Map.groupBy(story.admissions, ofRequest);
  const rows = Map.groupBy(story.rows, ofRequest);
  const stalled = Map.groupBy(story.stalled, ofRequest);
  for (const loss of losses.get(-1) ?? []) made.push(preempted(frame, loss));
  for (const id of asked(story)) {
    for (const loss of losses.get(id) ?? []) made.push(preempted(frame, loss));
    for (const admission of admissions.get(id) ?? []) made.push(admitted(frame, admission));
    for (const row of rows.get(id) ?? []) {
      left -= row.count;
      made.push(scheduled(frame, row, left));
    }
    for (const idle of stalled.get(id) ?? []) {
      const spans = fill(stalledWords[idle.reason], { requests: 1, budget });
      made.push(line(idle, "stalled", spans));
    }
  }
  made.push(...waiting(frame));
  const heat = HOT.find((kind) => made.some((one) => one.heat === kind));
  const hottest = made.find((one) => one.heat === heat);
  if (hottest) hottest.hot = true;
  return made;
}

/** All requests that the scheduler examined, in order. */
function asked({ rows, running, admissions }: Story): number[] {
  const order = [...running, ...admissions.map(({ request }) => request)];
  const scheduled_ = rows.map(({ request }) => request);
  // Rows are normally in this order. If another scheduler has its own, the rows' order counts.
  const has = new Set(scheduled_);
  const sorted = order.filter((id) => has.has(id));
  if (sorted.every((id, index) => id === scheduled_[index])) return order;
  return [...new Set([...scheduled_, ...order])];
}

function cleared({ blocks, seq }: Eviction) {
  const spans = say`the cache is cleared: ${clearedWords(blocks.length)}`;
  return line({ request: null, seq }, "evicted", spans);
}

/** Evictions of which the log does not know the cause. */
function evicted(evictions: Eviction[]) {
  const blocks = evictions.flatMap((one) => one.blocks);
  const words = say`${count(blocks.length, "cached block")} ${agree(blocks, "is", "are")} evicted`;
  return line({ request: null, seq: evictions[0].seq }, "evicted", words);
}

function preempted(frame: Frame, loss: Preemption) {
  const { request, by, free, evictable, computed, want } = loss;
  const { model } = frame;
  const cause = fill(messages.preempted, {
    who: say`${halfDot(model, "preemption_causes")}${request === by ? "it" : model.tag(by)}` as any,
    blocks: needWords(frame, loss),
    supply: supply(free, evictable),
  });
  const why = want ? cause : say`${messages.preempted.split(":")[0]}`;
  if (lacks(model, "block_tables")) return line(loss, "preempted", why);
  const kept = Math.min(keptTokens(frame, loss), computed);
  const rest = `${kept || "none"} ${kept > 1 ? "are" : "is"} still cached`;
  const tokens = count(computed, "computed token");
  return line(loss, "preempted", say`${why}${whyVictim(frame, loss)}. Of its ${tokens}, ${rest}.`);
}

/** Tokens of a victim that can still be found in the cache. */
function keptTokens(frame: Frame, { request, table, seq }: Preemption) {
  if (!isSecret(frame.model.requestSpan(request).tokens)) return frame.path(request).tokens;
  const gone = table.findIndex(
    (block) => !["others", "cached"].includes(frame.fate(block, seq).fate),
  );
  return (gone < 0 ? table.length : gone) * frame.state.blockSize;
}

/** "2 blocks". */
export function needWords(frame: Frame, loss: Preemption) {
  const need = needOf(frame, loss);
  // Another engine may count differently; what it needed is then not known.
  return need > 0 ? count(need, "block") : "more blocks";
}

/**
 * How many blocks the preempting request needs, as the scheduler counts them at that moment: enough for
 * its tokens of this step, and one more if it has to copy a shared block.
 */
export function needOf({ story, state, budget }: Frame, { by, want, refunded }: Preemption) {
  if (!want) return 0;
  const row = story.rows.find(({ request }) => request === by);
  let tokens = row && row.end - row.start;
  if (tokens === undefined) {
    const order = asked(story);
    const rank = (id: number) => order.indexOf(id);
    const earlier = story.rows.filter(({ request }) => rank(request) < rank(by));
    // Drafts get what is left of the budget when every row has its own tokens.
    const given = sum(earlier, ({ start, end }) => end - start);
    tokens = Math.min(want.uncomputed, budget.budget - given - refunded);
  }
  const blocks = Math.ceil((want.computed + tokens) / state.blockSize) - want.blocks;
  return blocks + Number(want.writesShared);
}

/**
 * Why this request is the victim, for policies with a known rule. The rule is checked against the state: a
 * victim that it would not have chosen gets no reason.
 */
function whyVictim({ model }: Frame, { request, by, running }: Preemption): Span[] {
  const name = request === by ? "it" : model.tag(request);
  const { policy } = model.classes;
  if (running.length === 1) return say`; no other request runs`;
  if (["Policy", "Fcfs", "ShortestJobFirst", "LongestPrefixMatch"].includes(policy)) {
    return running.at(-1) === request ? say`; ${name} was admitted last` : [];
  }
  if (policy !== "Priority") return [];
  const urgency = (id: number) =>
    model.requestSpan(id).priority - model.requestSpan(request).priority;
  const others = running.filter((id) => id !== request);
  if (others.every((id) => urgency(id) < 0)) return say`; ${name} is the least urgent`;
  const last = others.every((id) => urgency(id) < 0 || (urgency(id) === 0 && id < request));
  return last ? say`; of the least urgent, ${name} arrived last` : [];
}

/** "resumes after 3 steps: 16 of its 45 tokens are cached". */
export function admissionWords(
  model: Model,
  {
    resumed,
    after,
    found,
    length,
  }: Pick<Admission, "resumed" | "found" | "length"> & { after: string },
) {
  const words = fill(messages[resumed ? "resumed" : "admitted"], { after, found, length });
  return lacks(model, "cached_tokens") ? say`${plain(words).split(":")[0]}` : words;
}

function admitted(frame: Frame, admission: Admission) {
  const { request, found, length, resumed, prefix } = admission;
  const waited = waitOf(frame, request);
  const after = waited ? ` after ${count(waited, "step")}` : "";
  const words = admissionWords(frame.model, { resumed, after, found, length });
  const { story, state } = frame;
  const more = [movedWords(story.moves, request, state.blockSize), slotWords(frame, request)]
    .map((one) => one && `; ${one}`)
    .join("");
  const spans = say`${words}${adoptedWords(prefix)}${more}`;
  return line(admission, "admitted", spans, { heat: found ? "hit" : "admitted" });
}

/** Steps that a request had waited when it was admitted in this one. */
export function waitOf({ model, step }: Frame, id: number) {
  const wait = waitIn(model.requestSpan(id), step - 1);
  return wait?.to === step - 1 ? step - wait.from : 0;
}

function scheduled(frame: Frame, row: Row, left: number) {
  const { model, story } = frame;
  const { request, count: tokens, drafts, kind } = row;
  const parts = [say`${rowWords(row)}`];
  const evicted = story.evictions.flatMap((one) => (one.neededBy === request ? one.blocks : []));
  if (evicted.length) {
    const mark = halfDot(model, "eviction_causes");
    parts.push(say`${mark}evicting ${blockList(evicted)}${leftBy(frame, evicted)}`);
  }
  const pages = story.lostPages.flatMap((one) => (one.neededBy === request ? one.blocks : []));
  if (pages.length) {
    const number = agree(pages.length, "the window page", "the window pages");
    parts.push(say`with ${number} of ${blockList(pages)}`);
  }
  const copy = story.copies.find((one) => one.request === request);
  if (copy) {
    const sharers = list(copy.sharers.map((id) => model.tag(id)));
    parts.push(say`copying block ${copy.source}, shared with ${sharers}, to ${copy.block}`);
  }
  const taken = story.takenBy(request);
  for (const loss of story.preemptions.filter(({ by }) => by === request)) {
    const into = taken.filter((block) => loss.table.includes(block));
    if (into.length) parts.push(say`into ${model.tag(loss.request)}'s ${blockList(into)}`);
  }
  const wasted = rowWasted(model.requestSpan(request), frame.step);
  if (wasted) parts.push(say`${wastedWords(wasted)}`);
  const spans = parts.flatMap((part, index) => (index ? say`, ${part}` : part));
  const heat = evicted.length ? "evicting" : copy ? "copying" : kind;
  const plain = kind === "decode" && parts.length === 1 && !drafts.length;
  return line(row, kind, spans, { tokens, left, heat, plain });
}

/**
 * The victims of this step that held the evicted blocks. Before the preemption these could not be evicted,
 * as its reason says.
 */
function leftBy({ model, story }: Frame, evicted: number[]) {
  const losses = story.preemptions.filter(({ table }) =>
    evicted.some((block) => table.includes(block)),
  );
  if (!losses.length) return [];
  const left = evicted.filter((block) => losses.some(({ table }) => table.includes(block)));
  const which = left.length < evicted.length ? `${left.length} of them ` : "";
  const names = list([...new Set(losses.map(({ request }) => request))].map((id) => model.tag(id)));
  return say` (${which}left by ${names})`;
}

/** The waiting requests, one line for each reason, the head of the queue first. */
function waiting(frame: Frame) {
  const { story, model } = frame;
  const seq = Number(model.stepInfo(frame.step).scheduled);
  if (lacks(model, "waiting_reasons") && story.waiting.length) {
    const { waiting: requests } = story;
    return [
      line({ request: requests[0], seq }, "waits", say`${agree(requests, "waits", "wait")}`, {
        requests,
      }),
    ];
  }
  const groups: Map<
    number | string | null,
    { reason: string; head: number | null; requests: number[] }
  > = new Map();
  for (const request of story.waiting) {
    const { reason, head } = frame.waitOf(request);
    if (!reason) continue;
    const key = head === request ? reason : head;
    const group = groups.get(key) ?? { reason, head, requests: [] };
    groups.set(key, group);
    group.requests.push(request);
  }
  const isBehind = ({ head, requests }: { head: number | null; requests: number[] }) =>
    Number(head === null || !requests.includes(head));
  const sorted = [...groups.values()].sort((a, b) => isBehind(a) - isBehind(b));
  return sorted.map((group) => {
    const { reason, head, requests } = group;
    const verb = agree(requests, "waits", "wait");
    const spans = isBehind(group)
      ? say`${verb} ${halfDot(model, "waiting_reasons")}behind ${model.tag(head)}`
      : say`${verb} ${halfDot(model, "waiting_reasons")}because ${frame.reasonFor(reason, requests)}`;
    return line({ request: requests[0], seq }, "waits", spans, { requests });
  });
}

export function outcomes(frame: Frame): Decision[] {
  const { model, story, events } = frame;
  const arrived = story.arrived.map((request) => {
    const span = model.requestSpan(request);
    const tokens = count(span.promptLength, "prompt token");
    const adapter = adapterWords(span);
    const spans = say`arrives with ${tokens}${adapter && ` for the ${adapter}`}`;
    return line({ request, seq: events.from }, "arrived", spans);
  });
  const removed = story.slots
    .filter(({ adapter }) => !adapter)
    .map(({ seq, evicted, slot }) =>
      line({ request: null, seq }, "evicted", fill(messages.adapter.removed, { evicted, slot })),
    );
  const forked = story.forks.map((fork) => {
    const blocks = count(fork.blocks, "block");
    const spans = say`is another sample of ${model.tag(fork.parent)}'s prompt and shares its ${blocks}`;
    return line(fork, "forked", spans);
  });
  const joined = story.joins.map((join) => {
    const number = count(join.blocks.length, "block");
    const those = agree(join.blocks.length, "that one", "those");
    const blocks = blockList(join.blocks);
    const spans = say`computed ${number} that the cache has by now, and uses ${those}: ${blocks}`;
    return line(join, "joined", spans);
  });
  const ended = story.endings.map((end) =>
    line(end, end.reason === "abort" ? "aborted" : "finished", endingWords(frame, end)),
  );
  const wasted = story.wasted.flatMap((row) => {
    const why = rowWasted(model.requestSpan(row.request), row.of);
    return why ? line(row, "wasted", say`its row was ${wastedWords(why, row.of)}`) : [];
  });
  return [...arrived, ...removed, ...wasted, ...forked, ...joined, ...ended];
}

function endingWords(frame: Frame, { request, reason, message, table, seq }: Ending) {
  const { maxTokens, tokenSteps } = frame.model.requestSpan(request);
  const output = tokenSteps.filter((at) => at <= frame.step).length;
  const verbs: Record<string, string> = {
    abort: "was aborted",
    error: `ends: ${message}`,
    length: `reaches its limit of ${count(maxTokens, "token")}`,
    stop: `stops after ${count(output, "token")}`,
  };
  const cached = table.filter((block) => frame.fate(block, seq).fate === "cached").length;
  const part = cached < table.length ? `${cached} of ` : "";
  const kept = cached ? `; the cache keeps ${part}its ${count(table.length, "block")}` : "";
  return say`${verbs[reason]}${kept}`;
}
