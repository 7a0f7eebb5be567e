/** The storytellers' log as a reader of another engine's trace would make it: with parts taken away. */

import { readFileSync } from "node:fs";
import { Model } from "../../src/model/index.ts";
import { knowledgeWords } from "../../src/model/knowledge.ts";
import { parseLog } from "./read.js";

const { events } = parseLog(
  readFileSync(new URL("../storytellers.jsonl", import.meta.url), "utf8"),
);
/** 16 digits that look random. */
const hex = (number) => ((number * 2654435761) % 2 ** 32).toString(16).padStart(8, "1").repeat(2);
const blanks = (list, value) => list.map(() => value);

/** `known` says how facts are known that are not recorded. `gapAfter`: a step after which messages are missing. */
export function foreign(known = {}, gapAfter = null) {
  const facts = Object.fromEntries(
    Object.keys(knowledgeWords.facts).map((fact) => [fact, known[fact] ?? "recorded"]),
  );
  const lacks = (fact) => facts[fact] === "unknown";
  const strip = {
    run_started: (event) => ({
      ...event,
      classes: {},
      source: { engine: "vLLM 0.32.0", recorder: "recorder 1", facts },
    }),
    request_arrived: (event) => ({
      ...event,
      label: `cmpl-${hex(event.request)}-0`,
      prompt: lacks("token_ids") ? blanks(event.prompt, -1) : event.prompt,
      texts: lacks("texts") ? blanks(event.texts, "") : event.texts,
      t: lacks("arrivals") ? {} : event.t,
    }),
    step_scheduled: (event) => (lacks("waiting_reasons") ? { ...event, blocked: null } : event),
    preempted: (event) => (lacks("preemption_causes") ? { ...event, needed_by: -1 } : event),
    radix_evicted: (event) => (lacks("eviction_causes") ? { ...event, needed_by: -1 } : event),
    step_finished: ({ tokens, ...event }) => ({
      ...event,
      tokens: tokens.map(([id, ids, texts, ...rest]) => [
        id,
        lacks("token_ids") ? blanks(ids, -1) : ids,
        lacks("texts") ? blanks(texts, "") : texts,
        ...rest,
      ]),
    }),
  };
  const stripped = events.map((event) => strip[event.type]?.(event) ?? event);
  if (gapAfter !== null) {
    const ends = stripped.flatMap(({ type }, i) => (type === "step_finished" ? [i] : []));
    const gap = { type: "events_missing", count: 7, message: "a disk was full" };
    stripped.splice(ends[gapAfter - 1] + 1, 0, gap);
  }
  return new Model(stripped);
}

export const SECRET = { token_ids: "unknown", texts: "unknown", probabilities: "unknown" };
