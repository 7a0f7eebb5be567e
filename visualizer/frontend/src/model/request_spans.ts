/** What happened to each request from its arrival to its end: the timeline draws it, the sentences describe it. */

import type { Events, Facts, LogEvent } from "./events.ts";
import type { Content, RequestState, State } from "./fold.ts";
import type { IndexedEvents, Table } from "./indexed_events.ts";
import { Joined } from "./joined.ts";
import { laneOf } from "./lanes.ts";
import { LogError } from "./log.ts";

export interface Segment {
  kind: "waiting" | "preempted" | "prefill" | "catchup" | "decode" | "stalled";
  from: number;
  to: number | null; // the last step of it; null while it lasts
  by?: number | null; // preempted: the request that needed its blocks
  resume?: number | null; // preempted: the step that resumed it
  start?: number; // prefill and catch-up: the first token computed
  count?: number; // tokens computed, without drafts
  found?: number; // tokens found in the cache just before
  recomputed?: number; // of `count`, those that had been computed before a preemption
  reachesOutput?: boolean; // the last token of it is the only one that is new, and a decode
  drafts?: number;
  accepted?: number;
  reason?: string; // stalled: why
  wasted?: "ended" | "preempted" | "dropped"; // why the row of this one step was in vain
}

/** what a request's grammar left to choose from for an output token */
export interface Mask {
  allowed: number; // number of tokens that it allowed
  wanted: string | null; // what the model preferred, if the grammar forbids it
  mass: number | null; // the model's probability of all allowed tokens together, if the log has it
}

const NOT_ADOPTED = { adopted: 0, source: "" };

export class RequestSpan {
  /** Its tokens, which the states of the fold share with it. */
  content: Content;
  id: number;
  name = ""; // its label, numbered if another has it, or the short
  label: string;
  index = 0; // its place among all requests, in order of appearance
  lane: number | null = null; // its lane, see `lanes.ts`; null if it was never admitted
  lanedAt = Infinity; // the step that gave it the lane; in a window, the first step if that is earlier
  root: number;
  sample: number;
  n: number;
  promptLength: number;
  maxTokens: number;
  priority: number;
  sampling: Record<string, any>;
  /** The adapter and the digest of the cache salt, if it has one of them. */
  extra_key: string[];
  arrived: number | null = null;
  arrivedAt: number | null = null;
  examined = 0; // the first step whose scheduling could see it
  beginsAt = 0; // number of finished steps when it arrived
  endsAt: number | null = null; // and when it ended; null: it lives
  firstToken: number | null = null; // index of the finished step that gave its first token
  /** Its first admission, step 0 before the log begins, with the tokens found and how many of them another replica computed. */
  admitted: { step: number; found: number; prefix: { adopted: number; source: string } } | null =
    null;
  /** The first step in which only memory kept it out, and how many blocks were missing. */
  shortfall: { step: number; missing: number } | null = null;
  computed = 0; // tokens that it has ever computed
  admissions: { step: number; found: number; resumed: boolean; seq: number }[] = [];
  preemptions: { step: number; computed: number; resume: number | null }[] = [];
  forked: { step: number; parent: number } | null = null;
  finished: { step: number; reason: string; message: string; seq: number } | null = null;
  drafted: number[] = []; // positions of output tokens that were accepted drafts
  forced: number[] = []; // positions of output tokens that a tool or the grammar wrote
  masks: Mask[] = []; // by output token: what the request's grammar left to choose from
  /** If an index says them: its latencies, see `facts.py`. */
  ttft: number | null = null;
  slowest: number | null = null;
  tokenSteps: number[] = []; // the step of each output token
  segments: Segment[] = [];
  before: Segment[] = []; // those of its parent before the fork, or what a keyframe says of earlier steps

  /** The part of an index that has its tokens. */
  declare part?: number;

  constructor(request: Seen) {
    this.content = request.content;
    this.id = request.id;
    this.label = request.label;
    this.root = request.root;
    this.sample = request.sample;
    this.n = request.num_seqs;
    this.promptLength = request.prompt_length;
    this.maxTokens = request.max_tokens;
    this.priority = request.priority;
    this.sampling = request.sampling;
    this.extra_key = request.extra_key ?? [];
  }

  /** Such as "r8". */
  get short() {
    return `r${this.id}`;
  }

  /** The step in which it appeared. */
  get appeared() {
    return this.forked?.step ?? this.arrived ?? 0;
  }

  get tokens() {
    return this.content.tokens;
  }

  get texts() {
    return this.content.texts;
  }

  /** Of the prompt's full blocks, in a foreign log without token ids. */
  get hashes() {
    return this.content.hashes;
  }

  /** By output token, as far as the log has them. */
  get logprobs() {
    return (this.content.logprobs ??= []);
  }
}

/** the lives and the contents of the parts of an index, which are read when they are needed */
export type Details = IndexedEvents[];

/** a part of an index: its requests, and where the rest of them is */
interface RequestPart {
  fact: Table<Facts["request"]>; // of all parts
  details: Details;
  number: number;
  first: number; // the row of its first request
  firstLane: number;
}

/** Requests of an index of which something is unpacked; of too many, all give it up. */
const unpacked: Set<KnownRequest> = new Set();
const MOST_UNPACKED = 1000;

/** A request of an index, of which everything is read from the columns when it is looked at. */
class KnownRequest implements RequestSpan, Content {
  declare id: number;
  declare label: string;
  declare index: number;
  declare root: number;
  declare sample: number;
  declare n: number;
  declare promptLength: number;
  declare maxTokens: number;
  declare priority: number;
  declare arrived: number | null;
  declare arrivedAt: number | null;
  declare examined: number;
  declare beginsAt: number;
  declare endsAt: number | null;
  declare firstToken: number | null;
  declare computed: number;
  declare ttft: number | null;
  declare slowest: number;
  declare sampling: Record<string, any>;
  declare tokens: number[];
  declare texts: string[];
  declare drafted: number[];
  declare forced: number[];
  declare segments: Segment[];
  declare before: Segment[];
  name = "";
  #part: RequestPart;
  #row: number;
  #known: Record<string, any> | null = null;

  /** @param row which of all requests it is */
  constructor(part: RequestPart, row: number) {
    this.#part = part;
    this.#row = row;
  }

  static {
    const define = (columns: string, of: (one: KnownRequest, column: any) => any) => {
      for (const column of columns.split(" ")) {
        const name = column.replace(/_(.)/, (_, letter) => letter.toUpperCase());
        const get = function (this: KnownRequest) {
          return of(this, column);
        };
        Object.defineProperty(KnownRequest.prototype, name, { get });
      }
    };
    define(
      "id label index root sample n prompt_length max_tokens priority arrived arrived_at examined " +
        "begins_at ends_at first_token computed ttft slowest",
      (one, name) => one.#of(name),
    );
    define("sampling tokens texts drafted forced", (one, name) => one.#content(name));
    define("segments before", (one, name) => one.#life(name));
  }

  #of<Name extends keyof Facts["request"]>(name: Name): Facts["request"][Name] {
    return this.#part.fact[name].at(this.#row) as Facts["request"][Name];
  }

  #once(name: string, unpack: () => any): any {
    if (unpacked.size >= MOST_UNPACKED) {
      for (const one of unpacked) one.#known = null;
      unpacked.clear();
    }
    unpacked.add(this);
    this.#known ??= {};
    return (this.#known[name] ??= unpack());
  }

  #detail(kind: number, name: string) {
    const { details, number, first } = this.#part;
    return details[kind].at(number)[name].at(this.#row - first);
  }

  #content(name: keyof Facts["content"]): any {
    return this.#once(name, () => this.#detail(1, name));
  }

  #life(name: keyof Facts["life"]): Segment[] {
    return this.#once(name, () => this.#detail(0, name).map(segmentOf));
  }

  get content() {
    return this;
  }

  get short() {
    return `r${this.id}`;
  }

  get lane() {
    const lane = this.#of("lane");
    return lane === null ? null : this.#part.firstLane + lane;
  }

  get lanedAt() {
    return this.#of("laned_at") ?? Infinity;
  }

  get extra_key() {
    return this.#of("extra_key");
  }

  get admitted() {
    const row = this.#of("admitted");
    if (!row) return null;
    const [step, found, adopted, source] = row;
    return { step, found, prefix: source ? { adopted, source } : NOT_ADOPTED };
  }

  get shortfall() {
    const row = this.#of("shortfall");
    return row && { step: row[0], missing: row[1] };
  }

  get admissions() {
    return this.#of("admissions").map(([step, found, resumed, seq]) => {
      return { step, found, resumed, seq };
    });
  }

  get preemptions() {
    return this.#of("preemptions").map(([step, computed, resume]) => {
      return { step, computed, resume };
    });
  }

  get forked() {
    const row = this.#of("forked");
    return row && { step: row[0], parent: row[1] };
  }

  get finished() {
    const row = this.#of("finished");
    if (!row) return null;
    const [step, reason, message, seq] = row;
    return { step, reason, message, seq };
  }

  get masks() {
    const masks: Mask[] = [];
    this.#content("masks").forEach((mask: any, at: number) => {
      if (mask) masks[at] = { allowed: mask[0], wanted: mask[1], mass: mask[2] };
    });
    return masks;
  }

  get tokenSteps(): number[] {
    return this.#once("steps", () => {
      let step = 0;
      return this.#content("token_steps").map((more: number) => (step += more));
    });
  }

  get appeared() {
    return this.forked?.step ?? this.arrived ?? 0;
  }

  get part() {
    return this.#part.number;
  }

  get hashes() {
    const hashes = this.#content("hashes");
    return hashes.length ? hashes : undefined;
  }

  get logprobs(): number[] {
    return this.#once("known", () => {
      const logprobs: number[] = [];
      this.#content("logprobs").forEach((value: number, at: number) => {
        if (value <= 0) logprobs[at] = value;
      });
      return logprobs;
    });
  }
}

/** what is known of a request when it appears */
type Seen = Pick<
  RequestState,
  | "id"
  | "root"
  | "sample"
  | "priority"
  | "sampling"
  | "extra_key"
  | "label"
  | "num_seqs"
  | "prompt_length"
  | "max_tokens"
  | "content"
>;

/** The kinds of segments that are rows of steps. */
const ROWS = new Set(["prefill", "catchup", "decode"]);
/** The number in a label such as "cmpl-3f1e2a4b5c6d7e8f-0" or one with a UUID. */
const HEX = /(?<![\da-z])(?=[\d-]*[a-f])(?=[a-f-]*\d)[\da-f]{8}-?[\da-f]{4}[\da-f-]*/i;
const DIGITS = [4, 5, 6];
/** What vLLM puts around a client's id: "cmpl-ask-7-0-8935272d", "chatcmpl-ask-7-8935272d". */
const OF_VLLM = /^(?:cmpl-(.+)-\d+|chatcmpl-(.+))-[\da-f]{8}$/;
/** Longer labels are cut in a name. */
const NAME_LENGTH = 16;

export class RequestSpans {
  firstLane: number;
  list: RequestSpan[] = [];
  byId: Map<number, RequestSpan> = new Map();
  /** The number of lanes that requests have had. */
  laneCount = 0;
  names: Set<string> = new Set();
  /** The last number given to each name that several requests share. */
  numbers: Map<string, number> = new Map();
  /** What an index knows of requests. */
  #known: Partial<Record<keyof Facts["request"] | "length", Joined>> = {};

  /** @param firstLane the number of the first lane */
  constructor(firstLane: number) {
    this.firstLane = firstLane;
  }

  /**
   * Records an event that is about to be applied to `state`.
   *
   * @param hasBegun false: the event comes before the step's first decision
   */
  note(event: LogEvent, step: number, state: State, hasBegun: boolean) {
    const seq = state.seq + 1;
    switch (event.type) {
      case "admitted": {
        const span = this.#of(event.request);
        const found = event.blocks.length * state.blockSize;
        span.admissions.push({ step, found, resumed: event.resumed, seq });
        if (!event.resumed)
          span.admitted = { step, found, prefix: state.adoptedPrefix(event.node) };
        this.#endWait(span, step - 1);
        const last = span.preemptions.at(-1);
        if (event.resumed && last) last.resume = step;
        break;
      }
      case "preempted": {
        const span = this.#of(event.request);
        const { num_computed_tokens: computed } = state.request(span.id);
        span.preemptions.push({ step, computed, resume: null });
        const rows = [...state.plans.values()].flat().filter(([id]) => id === span.id);
        const ends = rows.map(([, start, count, drafts]) => start + count - drafts.length);
        span.computed = Math.max(span.computed, computed, ...ends);
        // A foreign log may not say what needed the blocks.
        const by = event.needed_by < 0 ? null : event.needed_by;
        span.segments.push({ kind: "preempted", from: step, to: null, by, resume: null });
        break;
      }
      case "step_scheduled":
        for (const row of event.rows) addRow(this.#of(row[0]), row, step, state);
        for (const [id, reason] of event.skipped) this.#skipped(id, reason, step, state);
        break;
      case "step_finished":
        event.tokens.forEach((row, index) => this.#gain(row, event.t ?? {}, index, step));
        for (const id of event.wasted ?? [])
          if (this.byId.has(id)) this.#waste(id, event.step, state); // else it ended before the log begins
        break;
      case "request_finished": {
        const span = this.#of(event.request);
        const { reason, message = "" } = event;
        // The last step in which it existed, as `finished_step` in `read(log).requests`.
        const last = Math.max(hasBegun ? step : step - 1, span.arrived ?? 0);
        span.finished = { step: last, reason, message, seq };
        this.#endWait(span, step - 1);
        trim(span, state.request(span.id).content);
      }
    }
  }

  /** Records an arrival, a fork or an admission that has just been applied to `state`: the request and its lane. */
  meet(
    event: Events["request_arrived"] | Events["forked"] | Events["admitted"],
    step: number,
    state: State,
  ) {
    if (event.type === "request_arrived") {
      const span = this.#add(state.request(event.request));
      span.arrived = step;
      span.arrivedAt = event.t?.at ?? null;
      span.tokenSteps = new Array(event.output?.length ?? 0).fill(0); // another replica generated these
      span.segments.push({ kind: "waiting", from: step, to: null });
    } else if (event.type === "forked") {
      const span = this.#add(state.request(event.request));
      const parent = this.#of(event.parent);
      span.arrived = parent.arrived;
      span.arrivedAt = parent.arrivedAt;
      const { n, examined, beginsAt, admitted, computed } = parent;
      Object.assign(span, { n, examined, beginsAt, admitted, computed });
      span.forked = { step, parent: parent.id };
      span.before.push(...historyOf(parent).map((segment) => ({ ...segment })));
    }
    this.#takeLane(this.#of(event.request), step, state);
  }

  /** Adds the requests of a keyframe: which requests exist is known, their history is not. */
  rejoin(step: number, state: State) {
    for (const request of state.requests.list()) {
      const span = this.#add(request);
      this.#takeLane(span, step, state);
      const { length, prompt_length, num_computed_tokens, place, preemptions } = request;
      span.tokenSteps = new Array(length - prompt_length).fill(0);
      span.computed = length > prompt_length ? length - 1 : num_computed_tokens;
      if (place === null || preemptions)
        span.admitted = { step: 0, found: 0, prefix: { adopted: 0, source: "" } };
      if (place === null) continue;
      if (preemptions) {
        const away = { kind: "preempted", by: null, resume: null } as const;
        span.before.push({ ...away, from: 0, to: step - 1 });
        span.segments.push({ ...away, from: step, to: null });
      } else span.segments.push({ kind: "waiting", from: step, to: null });
    }
    for (const [number, rows] of state.plans) {
      for (const row of rows) {
        const span = this.byId.get(row[0]); // it may have ended while its row is computed
        if (span) addRow(span, row, number, state, span.before);
      }
    }
  }

  /** Takes the requests of a part of an index; `named` follows once all are taken. */
  restore(fact: Table<Facts["request"]> & { length: number }, details: Details, number: number) {
    const { firstLane, list } = this;
    const part = {
      fact: this.#known as any,
      details,
      number,
      first: list.length,
      firstLane,
    };
    for (const [name, column] of Object.entries(fact) as [keyof typeof fact, any][])
      if (typeof column === "object" && name !== "sampling")
        // which its content has
        (this.#known[name] ??= new Joined()).add(column, fact.length);
    for (let row = 0; row < fact.length; row++) {
      this.laneCount = Math.max(this.laneCount, (fact.lane.at(row) ?? -1) + 1);
      list.push(new KnownRequest(part, part.first + row));
    }
  }

  /** Gives the requests of an index their names, in the order in which they appeared. */
  named() {
    for (const span of this.list.sort((one, other) => one.index - other.index)) this.#name(span);
    this.names.clear();
    this.numbers.clear();
  }

  #of(id: number) {
    const span = this.byId.get(id);
    if (!span) throw new LogError(`there is no request ${id}`);
    return span;
  }

  #add(request: Seen): RequestSpan {
    const span = new RequestSpan(request);
    span.index = this.list.length;
    this.list.push(span);
    this.#name(span);
    return span;
  }

  #takeLane(span: RequestSpan, step: number, state: State) {
    const lane = span.lane === null ? laneOf(state.lanes, span.id) : -1;
    if (lane < 0) return;
    span.lane = this.firstLane + lane;
    span.lanedAt = step;
    this.laneCount = Math.max(this.laneCount, lane + 1);
  }

  #name(span: RequestSpan) {
    const { label, short } = span;
    this.byId.set(span.id, span);
    const one = label
      .replace(/[\s\p{C}]+/gu, " ")
      .trim()
      .replace(OF_VLLM, "$1$2");
    const letters = [...one];
    let base =
      letters.length > NAME_LENGTH
        ? `${letters.slice(0, NAME_LENGTH - 1).join("")}…`
        : one || short;
    const hex = HEX.exec(one)?.[0].replaceAll("-", "");
    if (hex)
      base =
        DIGITS.map((most) => hex.slice(0, most)).find(
          (name, i) => i === DIGITS.length - 1 || !this.names.has(name),
        ) ?? base;
    let name = base;
    for (let number = this.numbers.get(base) ?? 2; this.names.has(name); number++) {
      name = `${base} ${number}`;
      this.numbers.set(base, number);
    }
    this.names.add(name);
    span.name = name;
  }

  /** Ends the open wait or preemption; one that took no step is removed. */
  #endWait(span: RequestSpan, to: number) {
    const open = openWait(span);
    if (!open) return;
    if (to < open.from) span.segments.pop();
    else open.to = to;
    if (open.kind === "preempted" && !span.finished) open.resume = to + 1;
  }

  /**
   * Records the tokens of a step.
   *
   * @param t what the step measured
   * @param number of the row
   */
  #gain(row: Events["TokenRow"], t: Record<string, any>, number: number, step: number) {
    const logprobs = t.logprobs?.[number];
    const ids = row[1];
    const allowed = row[5] ?? [];
    const accepted = row[3] ?? 0;
    const fromTool = ids.length - (row[4] ?? 0);
    const span = this.#of(row[0]);
    for (let index = 0; index < ids.length; index++) {
      const place = span.tokenSteps.push(step) - 1;
      if (index < accepted) span.drafted.push(place);
      if (index >= fromTool) span.forced.push(place);
      else if (logprobs?.[index] !== undefined) span.logprobs[place] = logprobs[index];
      if (allowed[index]) {
        const [, wanted] = t.wanted?.[number][index] ?? [0, null];
        span.masks[place] = {
          allowed: allowed[index],
          wanted,
          mass: t.mass?.[number][index] ?? null,
        };
      }
    }
    const segment = span.segments[span.segments.length - 1];
    if (segment?.from === step && segment.drafts) segment.accepted = accepted;
  }

  /** Makes a row in vain a segment of its own. */
  #waste(id: number, step: number, state: State) {
    const request = state.requests.get(id);
    const wasted = !request ? "ended" : request.place === null ? "dropped" : "preempted";
    const { segments: own, before } = this.#of(id);
    const indexIn = (segments: Segment[]) =>
      segments.findLastIndex((one) => isRow(one) && one.from <= step && step <= Number(one.to));
    const segments = indexIn(own) < 0 ? before : own;
    const at = indexIn(segments);
    if (at < 0) return; // the log begins after its row
    const segment = segments[at];
    const parts: Segment[] = [
      { ...segment, to: step - 1 },
      { ...segment, from: step, to: step, wasted },
      { ...segment, from: step + 1 },
    ];
    segments.splice(at, 1, ...parts.filter(({ from, to }) => from <= Number(to)));
  }

  #skipped(id: number, reason: string, step: number, state: State) {
    if (state.request(id).place !== null) return; // a waiting request that the policy deferred
    const { segments } = this.#of(id);
    const last = segments.at(-1);
    if (last?.kind === "stalled" && last.reason === reason && last.to === step - 1) last.to = step;
    else segments.push({ kind: "stalled", from: step, to: step, reason });
  }
}

/** The wait or preemption that a request is in at the end of a step. */
export const waitIn = ({ segments }: RequestSpan, step: number) =>
  segments.find(
    ({ kind, from, to }) =>
      (kind === "waiting" || kind === "preempted") && from <= step && step <= (to ?? Infinity),
  );

/** What is known of a request, in order: see `before`. */
export function historyOf({ before, segments }: Pick<RequestSpan, "before" | "segments">) {
  return before.length ? [...before, ...segments] : segments;
}

/** Whether a segment is of rows of steps. */
export const isRow = ({ kind }: Segment) => ROWS.has(kind);

/** Adds a row of a step; plain decodes share a segment. */
function addRow(
  span: RequestSpan,
  row: Events["ScheduledRow"],
  step: number,
  state: State,
  segments = span.segments,
) {
  const [id, start, count] = row;
  const drafts = row[3]?.length ?? 0;
  const tokens = count - drafts;
  const end = start + tokens;
  const request = state.request(id);
  const kind = rowKind(row, request);
  const recomputed = Math.max(0, Math.min(end, span.computed) - start);
  const last = segments[segments.length - 1];
  const segment = { kind, from: step, to: step, drafts, accepted: 0, recomputed };
  if (kind === "decode") {
    const isPlain = !drafts && !recomputed;
    const goesOn = last?.kind === kind && last.to === step - 1 && !last.wasted;
    if (goesOn && isPlain && !last.drafts && !last.recomputed) last.to = step;
    else segments.push(segment);
    return;
  }
  const admission = span.admissions.at(-1);
  const found = admission?.step === step ? admission.found : 0;
  const reachesOutput =
    start + recomputed >= request.prompt_length &&
    end >= request.length &&
    tokens - recomputed === 1;
  segments.push({ ...segment, start, count: tokens, found, reachesOutput });
}

/**
 * Gives back what an ended request's lists have reserved for more items: half of their memory, and most requests of a
 * long log have ended.
 *
 * @param content shared by the request's states and the nodes of the tree
 */
function trim(span: RequestSpan, content: Content) {
  content.tokens = content.tokens.slice();
  content.texts = content.texts.slice();
  content.logprobs = content.logprobs?.slice();
  span.tokenSteps = span.tokenSteps.slice();
  span.segments = span.segments.slice();
}

/** A segment of an index, with what its kind has. */
function segmentOf(row: Facts["Segment"]): Segment {
  const [kind, from, to, drafts, accepted, recomputed, start, count, found, reachesOutput] = row;
  const [by, resume, reason, wasted] = row.slice(10) as [any, any, string, any];
  if (kind === "waiting") return { kind, from, to };
  if (kind === "preempted") return { kind, from, to, by, resume };
  if (kind === "stalled") return { kind, from, to, reason };
  const segment = { kind, from, to, drafts, accepted, recomputed } as Segment;
  if (kind !== "decode") Object.assign(segment, { start, count, found, reachesOutput });
  if (wasted) segment.wasted = wasted;
  return segment;
}

/** The wait or preemption that has not ended. */
function openWait({ segments }: RequestSpan): Segment | null {
  const last = segments.at(-1);
  return last && last.to === null ? last : null;
}

/**
 * The kind of a row of a step. The engine has no phases; it computes the tokens that are not computed yet.
 *
 * @param request as it was when the row was scheduled
 * @returns catch-up: recomputed after a preemption, or forced
 */
export function rowKind(
  row: Events["ScheduledRow"],
  { prompt_length, length }: { prompt_length: number; length: number },
): "prefill" | "decode" | "catchup" {
  const start = row[1];
  const tokens = row[2] - (row[3]?.length ?? 0);
  if (start < prompt_length) return "prefill";
  return tokens > 1 || start + tokens < length ? "catchup" : "decode";
}

/** Why a request's row of a step was in vain; undefined if it was not. */
export function rowWasted({ segments }: RequestSpan, step: number) {
  return segments.find(({ from, wasted }) => wasted && from === step)?.wasted;
}
