/**
 * Why requests wait. The log says it once a step, for the head of the queue: it was asked, it did not fit,
 * and everybody else waits behind it. Two reasons hold for all alike: a step that preempts admits nobody,
 * and a static batch lets nobody in.
 *
 * @typedef {{reason: string | null, head: number | null}} Wait
 *   the reason of `head`; a request that is not the head waits behind it. null: nobody was asked yet.
 */

import { roomFor } from "./columns.js";
import { are, count, inWords, plain, reasonWords, say, some } from "./words.js";

const FOR_ALL = new Set(["after_preemption", "static_batch"]);
/** @type {Wait} */
const NOT_ASKED = { reason: null, head: null };

/** Who was at the head of the queue in each step, and why that request was not admitted. */
export class Heads {
  #firstStep = -1;
  #heads = new Int32Array(64);
  /** Indexes into `#names`; 0: nobody was asked. */
  #reasons = new Uint8Array(64);
  /** @type {(string | null)[]} */
  #names = [null];
  /** Waiting requests that the policy put off, by step. @type {Map<number, Map<number, string>>} */
  #putOff = new Map();

  /**
   * Takes note of a step_scheduled that is about to be applied to `state`.
   *
   * @param {import("./events.js").StepScheduled} event
   * @param {number} step
   * @param {import("./fold.js").State} state
   */
  note({ blocked, skipped }, step, state) {
    if (this.#firstStep < 0) this.#firstStep = step;
    const index = step - this.#firstStep;
    this.#heads = roomFor(this.#heads, index + 1);
    this.#reasons = roomFor(this.#reasons, index + 1);
    if (blocked) {
      const [head, reason] = blocked;
      if (!this.#names.includes(reason)) this.#names.push(reason);
      this.#heads[index] = head;
      this.#reasons[index] = this.#names.indexOf(reason);
    }
    const waiting = skipped.filter(([id]) => state.request(id).place !== null);
    if (waiting.length) this.#putOff.set(step, new Map(waiting));
  }

  /**
   * Why a request waited that did so at the end of this step's scheduling.
   *
   * @param {number} step
   * @param {number} id
   * @returns {Wait}
   */
  waitAt(step, id) {
    const index = step - this.#firstStep;
    const reason = this.#names[this.#reasons[index] ?? 0];
    const blocked = reason ? [this.#heads[index], reason] : null;
    return waitIn(blocked, this.#putOff.get(step), id);
  }
}

/**
 * Why a request waited, by what a step_scheduled says.
 *
 * @param {any[] | null | undefined} blocked
 * @param {Map<number, string> | undefined} putOff  by the policy
 * @param {number} id
 * @returns {Wait}
 */
export function waitIn(blocked, putOff, id) {
  const own = putOff?.get(id);
  if (own) return { reason: own, head: id };
  if (!blocked) return NOT_ASKED;
  const [head, reason] = blocked;
  return { reason, head: FOR_ALL.has(reason) ? id : head };
}

/**
 * A wait or a preemption of the timeline, cut where its reason changes.
 *
 * @param {import("./model.js").Model} model
 * @param {import("./request_spans.js").RequestSpan} span
 * @param {import("./request_spans.js").Segment} segment
 * @returns {(Wait & {from: number, to: number, spans: import("./words.js").Span[]})[]}
 */
export function waitSegments(model, span, segment) {
  return waitRuns(model, span, segment).map((run) => ({
    ...run,
    spans: shortWords(model, span, run.reason, run.head),
  }));
}

/**
 * The same without words.
 *
 * @param {import("./model.js").Model} model
 * @param {import("./request_spans.js").RequestSpan} span
 * @param {import("./request_spans.js").Segment} segment
 * @returns {(Wait & {from: number, to: number})[]}
 */
export function waitRuns(model, span, segment) {
  /** @type {(Wait & {from: number, to: number})[]} */
  const runs = [];
  for (let step = segment.from; step <= (segment.to ?? model.lastStep); step++) {
    const { reason, head } = model.waitAt(step, span.id);
    const last = runs[runs.length - 1];
    if (last && last.reason === reason && last.head === head) last.to = step;
    else runs.push({ from: step, to: step, reason, head });
  }
  return runs;
}

/** What was found out, as lanes ask in every frame; a wait that lasts goes on growing. */
const known = new WeakMap();

/**
 * The reasons of a segment in a few words, one after the other: for how many steps each held, and whether
 * it was the request's own, at the head of the queue. That somebody was preempted holds for one step only,
 * so it is said where there is no other reason.
 *
 * @param {import("./model.js").Model} model
 * @param {import("./request_spans.js").RequestSpan} span
 * @param {import("./request_spans.js").Segment} segment
 * @returns {{words: string, steps: number, own: boolean}[]}
 *   [{words: "behind r9", steps: 2, own: false}, {words: "batch full", steps: 7, own: true}]
 */
export function waitReasons(model, span, segment) {
  const to = segment.to ?? model.lastStep;
  if (known.get(segment)?.to === to) return known.get(segment).reasons;
  const all = waitRuns(model, span, segment).filter(({ reason }) => reason);
  const lasting = all.filter(({ reason }) => reason !== "after_preemption");
  /** @type {{words: string, steps: number, own: boolean}[]} */
  const reasons = [];
  for (const run of lasting.length ? lasting : all) {
    const words = plain(shortWords(model, span, run.reason, run.head));
    const last = reasons[reasons.length - 1];
    const steps = run.to - run.from + 1;
    if (last?.words === words) last.steps += steps;
    else reasons.push({ words, steps, own: run.head === span.id });
  }
  known.set(segment, { to, reasons });
  return reasons;
}

function shortWords(
  /** @type {import("./model.js").Model} */ model,
  /** @type {import("./request_spans.js").RequestSpan} */ span,
  /** @type {string | null} */ reason,
  /** @type {number | null} */ head,
) {
  if (!reason) return say`not asked yet`;
  return head === span.id ? say`${reasonWords[reason] ?? reason}` : say`behind ${model.tag(head)}`;
}

/**
 * Why the head of the queue was not admitted, with what it needs and what there is.
 *
 * @param {{reason: string, need: number, have: number, free: number, evictable: number}} blocked
 * @param {{token_budget: number, max_batch_size: number}} settings
 * @returns {string}  "it needs 5 blocks, 2 are free and 1 can be evicted"
 */
export function whyBlocked({ reason, need, have, free, evictable }, settings) {
  switch (reason) {
    case "after_preemption":
      return "a step that preempts admits nobody";
    case "static_batch":
      return "the batch is static";
    case "policy":
      return "the policy put it off";
    case "batch_full":
      if (have > 0) return `it needs ${count(need, "place")} and only ${are(have)} empty`;
      return settings.max_batch_size === 1
        ? "the one place is taken"
        : `${settings.max_batch_size === 2 ? "both" : `all ${inWords(settings.max_batch_size)}`} places are taken`;
    case "token_budget":
      return have > 0
        ? `it needs ${count(need, "token")} in one step, and ${have} of ${settings.token_budget} ${have === 1 ? "is" : "are"} left`
        : `the budget of ${count(settings.token_budget, "token")} is spent`;
    case "reserved_blocks":
      return `it may come to need ${count(need, "block")}, and ${
        have > 0 ? `only ${have} ${have === 1 ? "is" : "are"} not` : "all are"
      } promised to others`;
    case "no_free_blocks":
      return `it needs ${some(need, "block")}${supply(free, evictable, have)}`;
    default:
      return reason.replaceAll("_", " ");
  }
}

/**
 * What can be had. Cached blocks that the request itself would find are left out: evicting what it is about
 * to use gains nothing.
 */
function supply(
  /** @type {number} */ free,
  /** @type {number} */ evictable,
  /** @type {number} */ have,
) {
  const own = free + evictable - have;
  const others = evictable - own;
  const free_ = `${are(free)} free`;
  const rest = others > 0 ? `, ${free_} and ${others} can be evicted` : ` and ${free_}`;
  if (!own) return rest;
  const kept =
    own === 1 ? "the cached one is its own prefix" : `the ${own} cached ones are its own prefix`;
  return others > 0 ? `${rest}; ${kept}` : `, ${free_}, and ${kept}`;
}
