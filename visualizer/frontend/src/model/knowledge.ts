/**
 * What a log knows: recorded facts carry no mark, a half dot precedes each inferred statement, and an unknown fact is
 * named instead of drawn. Python's twin is `visualizer/reading/knowledge.py`; both have their words from `knowledge.json`.
 */

import words from "../../../reading/knowledge.json" with { type: "json" };
import type { Events } from "./events.ts";
import type { LogSource } from "./fold.ts";
import { agree, count } from "./words.ts";

export type Fact = keyof typeof words.facts;

export type Knowledge = "recorded" | "inferred" | "unknown";

/** a model or a state */
type Log = { source: LogSource };

export { words as knowledgeWords };

/** The mark before an inferred statement, as a letter; pages draw it. */
export const HALF_DOT = words.half_dot[0];
export const LEVELS: Knowledge[] = ["recorded", "inferred", "unknown"];

/** How a log knows a fact; a log of our own engine has recorded all of them. */
function knowledgeOf({ source: { facts } }: Log, fact: Fact) {
  return (facts ? (facts[fact] ?? "unknown") : "recorded") as Knowledge;
}

/** How a log knows what follows from all of some facts. */
export function levelOf(log: Log, facts: Fact[]) {
  const known = facts.map((fact) => knowledgeOf(log, fact));
  return LEVELS.findLast((level) => known.includes(level)) ?? "recorded";
}

/** Whether a log does not know one of some facts. */
export const lacks = (log: Log, ...facts: Fact[]) =>
  facts.some((fact) => knowledgeOf(log, fact) === "unknown");

/** A half dot if the fact is inferred, or "". */
export const halfDot = (log: Log, fact: Fact) =>
  knowledgeOf(log, fact) === "inferred" ? words.half_dot : "";

/** Whether a request's tokens are unknown; each id is then -1. */
export const isSecret = (tokens: number[]) => tokens[0] < 0;

/** The facts of a log that are known in this way. */
export const factsAt = (log: Log, level: Knowledge) =>
  (Object.keys(words.facts) as Fact[]).filter((fact) => knowledgeOf(log, fact) === level);

/**
 * "7 messages are missing here: the disk was full".
 *
 * @param gap its count is 0 if unknown
 */
export const gapWords = ({
  count: lost,
  message,
}: Pick<Events["events_missing"], "count" | "message">) =>
  words.gap
    .replace(
      "{messages}",
      lost ? `${count(lost, "message")} ${agree(lost, "is", "are")}` : "messages are",
    )
    .replace("{why}", message && `: ${message}`);

/** "only steps 85,789 to 107,889 of 107,889", or "" for a whole run. A notebook may save no more than a part of a log. */
export function partWords(
  {
    stepsBefore,
    firstStep,
    lastStep,
  }: { stepsBefore: number; firstStep: number; lastStep: number },
  lastOfLog = 0,
) {
  if (!stepsBefore && lastStep >= lastOfLog) return "";
  const first = Math.min(Math.max(firstStep, stepsBefore + 1), lastStep);
  const numbers = { first, last: lastStep, of: Math.max(lastStep, lastOfLog) };
  return Object.entries(numbers).reduce(
    (text, [name, value]) => text.replace(`{${name}}`, value.toLocaleString("en")),
    words.part,
  );
}

/** The sentence that says what is missing, or "" if the facts are known. */
export function missing(log: Log, ...facts: Fact[]) {
  const fact = facts.find((one) => lacks(log, one));
  if (!fact) return "";
  const isHashed =
    (fact === "texts" || fact === "token_ids") &&
    lacks(log, "token_ids") &&
    knowledgeOf(log, "prefix_tree") === "recorded";
  return words[isHashed ? "missing_hashed" : "missing"]
    .replace("{fact}", words.facts[fact][0].toUpperCase() + words.facts[fact].slice(1))
    .replace("{recorder}", log.source.recorder ?? "its source");
}
