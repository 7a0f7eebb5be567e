/**
 * Why requests wait. The log gives one reason per step, that of the head of the queue: it did not fit, and
 * all other waiting requests are behind it. Two reasons hold for every waiting request: a step that preempts
 * admits none, and neither does a static batch that has not finished.
 */

import { BlockedHeads } from "./columns.ts";
import type { Events, Facts } from "./events.ts";
import type { State } from "./fold.ts";
import type { Lists } from "./indexed_events.ts";
import { lacks } from "./knowledge.ts";
import { reasonWords } from "./messages.ts";
import type { Model } from "./model.ts";

/** the reason of `head`; a request that is not the head waits behind it. null: no step was scheduled yet. */
type Wait = { reason: string | null; head: number | null };

/** Reasons that hold for every waiting request. */
export const FOR_ALL = new Set(["after_preemption", "static_batch"]);
const NOT_ASKED: Wait = { reason: null, head: null };
const NONE_DEFERRED = { policy: 0, adapter_slot: 0 };

/** The head of the queue in each step, and why it was not admitted. */
export class Heads {
  /** The causes of waits so far. */
  causes: Set<string> = new Set();
  /** The first step that is known. */
  #first: number | null = null;
  #heads = new BlockedHeads();
  /** Waiting requests that the policy deferred, by step. */
  #deferred: Map<number, Map<number, string>> = new Map();

  /** Records a step_scheduled that is about to be applied to `state`. */
  note({ blocked, skipped }: Events["step_scheduled"], step: number, state: State) {
    if (blocked) this.#block(step, blocked);
    if (state.suspendedCount) this.causes.add("preempted");
    if (blocked && state.waitingCount > state.suspendedCount) this.causes.add(blocked[1]);
    if (!blocked && lacks(state, "waiting_reasons") && state.waitingCount > state.suspendedCount)
      this.causes.add("unknown");
    const waiting = skipped.filter(([id]) => state.request(id).place !== null);
    for (const [, reason] of waiting) this.causes.add(reason);
    if (waiting.length) this.#deferred.set(step, new Map(waiting));
  }

  /** Takes some steps from an index. */
  restore({ step, blocked, deferred }: Facts["steps"]) {
    this.#first ??= step[0];
    this.#heads.put(step[0] - this.#first, blocked as unknown as Lists);
    for (const [i, putOff] of (deferred as unknown as Lists).rows())
      this.#deferred.set(step[i], new Map(putOff));
  }

  #block(step: number, blocked: Events["Blocked"]) {
    this.#first ??= step;
    this.#heads.set(step - this.#first, blocked);
  }

  #blocked(step: number) {
    return this.#heads.at(step - (this.#first ?? 0));
  }

  /** Why the head of the queue was not admitted in a step, and how many were put off, by reason. */
  inStep(step: number) {
    const [head = null, reason = null] = this.#blocked(step) ?? [];
    const whys = this.#deferred.get(step)?.values();
    const deferred = whys ? { ...NONE_DEFERRED } : NONE_DEFERRED;
    for (const why of whys ?? []) deferred[why as "policy"]++;
    return { reason, head, deferred };
  }

  /** Why a request waited that was in the queue when this step had been scheduled. */
  waitAt(step: number, id: number): Wait {
    return waitIn(this.#blocked(step), this.#deferred.get(step), id);
  }
}

/**
 * Why a request waited, according to a step_scheduled.
 *
 * @param deferred by the policy
 */
export function waitIn(
  blocked: [head: number, reason: string, ...need: number[]] | null | undefined,
  deferred: Map<number, string> | undefined,
  id: number,
): Wait {
  const own = deferred?.get(id);
  if (own) return { reason: own, head: id };
  if (!blocked) return NOT_ASKED;
  const [head, reason] = blocked;
  return { reason, head: FOR_ALL.has(reason) ? id : head };
}

/** The words for why a request waited in a step: "batch full", "behind r3"; "" if it was not examined yet. */
export function waitWords(model: Model, step: number, id: number) {
  const { reason, head } = model.waitAt(step, id);
  if (!reason) return "";
  return head === id ? (reasonWords[reason] ?? reason) : `behind ${model.tag(head).text}`;
}
