/**
 * What happened in each step, as bits: the model collects them while it reads a log, so that the step worth
 * opening and the marks on the strip are known without another pass.
 */

import type { Events, LogEvent } from "./events.ts";
import type { State } from "./fold.ts";

export const HAPPENED = {
  preempted: 1,
  evicted: 2,
  copied: 4,
  forked: 8,
  rejected: 16, // at least one draft
  hit: 32,
  largeHit: 64, // of half the prompt
  finished: 128, // by itself
  aborted: 256,
  failed: 512,
  // The fates of the blocks of preempted requests.
  others: 1024,
  cached: 2048,
  taken: 4096,
  missing: 8192, // messages of a foreign log's source
};

/** The bits of each kind of event, whatever is in it. */
const BITS: Partial<Record<LogEvent["type"], number>> = {
  preempted: HAPPENED.preempted,
  block_copied: HAPPENED.copied,
  radix_evicted: HAPPENED.evicted,
  block_evicted: HAPPENED.evicted,
  events_missing: HAPPENED.missing,
  forked: HAPPENED.forked,
};
const ENDS = { abort: "aborted", error: "failed", stop: "finished", length: "finished" } as const;

/** The happenings of the open step. */
export class StepHappenings {
  #bits = 0;
  #preemptions: { request: number; table: number[]; seq: number }[] = [];
  #taken: { request: number; block: number; seq: number }[] = [];

  /** Records an event that is about to be applied to `state`. */
  note(event: LogEvent, state: State) {
    const seq = state.seq + 1;
    this.#bits |= BITS[event.type] ?? 0;
    switch (event.type) {
      case "admitted": {
        if (!event.blocks.length) return;
        const { prompt_length } = state.request(event.request);
        const found = event.blocks.length * state.blockSize;
        this.#bits |= HAPPENED.hit | (2 * found >= prompt_length ? HAPPENED.largeHit : 0);
        return;
      }
      case "preempted": {
        const { request } = event;
        this.#preemptions.push({ request, table: state.request(request).block_table, seq });
        return;
      }
      case "blocks_allocated":
        // Only blocks that are allocated after a preemption can be a victim's.
        if (this.#preemptions.length)
          for (const block of event.blocks)
            this.#taken.push({ request: event.request, block, seq });
        return;
      case "block_copied":
        this.#taken.push({ request: event.request, block: event.block, seq });
        return;
      case "step_finished":
        if (hasRejected(event, state)) this.#bits |= HAPPENED.rejected;
        return;
      case "request_finished":
        this.#bits |= HAPPENED[ENDS[event.reason]];
    }
  }

  /** The bits of the step, which ends with `state`. */
  bits(state: State) {
    let bits = this.#bits;
    for (const { table, seq } of this.#preemptions) {
      for (const block of table) {
        const { fate } = fateOf(block, seq, this.#taken, this.#preemptions, state);
        if (fate !== "free") bits |= HAPPENED[fate];
      }
    }
    return bits;
  }
}

/** Whether a forward pass rejected a draft. */
function hasRejected({ step, tokens }: Events["step_finished"], state: State) {
  const rows = state.plans.get(step) ?? [];
  return rows.some(([request, , , drafts]) => {
    const gain = drafts.length && tokens.find(([id]) => id === request);
    return gain && (gain[3] ?? 0) < drafts.length;
  });
}

/** The fate of a block that a preempted or finished request released, at the end of the step. */
export type Fate = { fate: "others" | "cached" | "taken" | "free"; to: number | null };

/**
 * @param seq number of the event that released it
 * @param taken blocks allocated in the step
 * @param preemptions in the step
 * @param state at the end of the step
 */
export function fateOf(
  block: number,
  seq: number,
  taken: { request: number; block: number; seq: number }[],
  preemptions: { request: number; seq: number }[],
  state: State,
): Fate {
  const last = taken.findLast((one) => one.block === block && one.seq > seq);
  const lostAgain = preemptions.some(
    (one) => last && one.request === last.request && one.seq > last.seq,
  );
  if (last && !lostAgain) return { fate: "taken", to: last.request };
  const holders = state.refs(block) - Number(state.inTree(block));
  if (holders) return { fate: "others", to: null };
  return { fate: state.inTree(block) ? "cached" : "free", to: null };
}
