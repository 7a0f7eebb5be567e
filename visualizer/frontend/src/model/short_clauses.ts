/**
 * The clauses of a step's sentence where only the lanes are shown: who moves, who stops and who waits. They count neither
 * blocks nor the budget, because nothing on the screen shows these.
 */

import { CLAUSES, names, waitWords } from "./clauses.ts";
import { waitOf } from "./decisions.ts";
import { halfDot } from "./knowledge.ts";
import { fill, reasons } from "./messages.ts";
import { agree, count, say } from "./words.ts";

const { gaps, aborted, stalled, freeSeats, failed, finished, firstTokens, routine } = CLAUSES;

export const SHORT: typeof CLAUSES = {
  gaps,
  aborted,

  preempted(frame, add) {
    const { preemptions } = frame.story;
    for (const by of new Set(preemptions.map((one) => one.by))) {
      const losses = preemptions.filter((one) => one.by === by);
      const others = losses.filter(({ request }) => request !== by);
      const mark = halfDot(frame.model, "preemption_causes");
      const room = say`there is too little memory for ${names(frame, [by])}`;
      const gone = say`${names(frame, losses)} ${agree(losses, "is", "are")} preempted`;
      if (mark || !losses[0].want) add(1, say`${gone}.`);
      else if (!others.length) add(1, say`${room}, so it is preempted itself.`);
      else add(1, say`${room}, so ${gone}.`);
    }
  },

  resumed(frame, add) {
    for (const { request, resumed } of frame.story.admissions) {
      const waited = waitOf(frame, request);
      const after = waited ? ` after ${count(waited, "step")}` : "";
      if (resumed) add(3, say`${names(frame, [request])} continues${after}.`);
    }
  },

  admitted(frame, add) {
    const fresh = frame.story.admissions.filter(({ resumed }) => !resumed);
    if (fresh.length > 2) add(5, say`${names(frame, fresh)} start.`);
    else
      for (const one of fresh) {
        const wait = waitWords(frame, one.request);
        add(5, say`${names(frame, [one])} ${wait ? `${wait}, and starts` : "starts"}.`);
      }
  },

  stalled,

  waiting(frame, add) {
    const { blocked, preemptions, scheduled } = frame.story;
    const lost = new Set(preemptions.map(({ request }) => request));
    const ids = (scheduled ? frame.story.waiting : frame.waiting).filter((id) => !lost.has(id));
    if (!ids.length || frame.status === "joined") return;
    const wait = say`${names(frame, ids, 3)} ${agree(ids, "waits", "wait")}`;
    // A request that the policy skipped has another reason than the head of the queue.
    const isOne = blocked && !scheduled?.skipped.length;
    const clause = isOne && fill(reasons[blocked.reason].clause, { who: agree(ids, "it", "them") });
    const mark = halfDot(frame.model, "waiting_reasons");
    add(6, clause ? say`${wait} ${mark}because ${clause}.` : say`${wait}.`);
  },

  freeSeats,
  failed,
  finished,
  firstTokens,
  routine,
};
