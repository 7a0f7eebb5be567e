/**
 * What a log knows: recorded facts carry no mark, a half dot precedes each inferred statement, and an unknown fact is
 * named instead of drawn. Python's twin is `visualizer/reading/knowledge.py`; both have their words from `knowledge.json`.
 *
 * @typedef {keyof typeof words.facts} Fact
 * @typedef {"recorded" | "inferred" | "unknown"} Knowledge
 * @typedef {{source: import("./fold.js").LogSource}} Log  a model or a state
 */

import words from "../../../reading/knowledge.json" with { type: "json" };
import { agree, count } from "./words.js";

export { words as knowledgeWords };

/** The mark before an inferred statement, as a letter; pages draw it. */
export const HALF_DOT = words.half_dot[0];
/** @type {Knowledge[]} */
export const LEVELS = ["recorded", "inferred", "unknown"];

/** How a log knows a fact; a log of our own engine has recorded all of them. @param {Log} log @param {Fact} fact */
function knowledgeOf({ source: { facts } }, fact) {
  return /** @type {Knowledge} */ (facts ? (facts[fact] ?? "unknown") : "recorded");
}

/** How a log knows what follows from all of some facts. @param {Log} log @param {Fact[]} facts */
export function levelOf(log, facts) {
  const known = facts.map((fact) => knowledgeOf(log, fact));
  return LEVELS.findLast((level) => known.includes(level)) ?? "recorded";
}

/** Whether a log does not know one of some facts. @param {Log} log @param {...Fact} facts */
export const lacks = (log, ...facts) => facts.some((fact) => knowledgeOf(log, fact) === "unknown");

/** A half dot if the fact is inferred, or "". @param {Log} log @param {Fact} fact */
export const halfDot = (log, fact) => (knowledgeOf(log, fact) === "inferred" ? words.half_dot : "");

/** Whether a request's tokens are unknown; each id is then -1. @param {number[]} tokens */
export const isSecret = (tokens) => tokens[0] < 0;

/** The facts of a log that are known in this way. @param {Log} log @param {Knowledge} level */
export const factsAt = (log, level) =>
  /** @type {Fact[]} */ (Object.keys(words.facts)).filter(
    (fact) => knowledgeOf(log, fact) === level,
  );

/**
 * "7 messages are missing here: the disk was full".
 *
 * @param {Pick<import("./events.js").EventsMissing, "count" | "message">} gap  its count is 0 if unknown
 */
export const gapWords = ({ count: lost, message }) =>
  words.gap
    .replace(
      "{messages}",
      lost ? `${count(lost, "message")} ${agree(lost, "is", "are")}` : "messages are",
    )
    .replace("{why}", message && `: ${message}`);

/** The sentence that says what is missing, or "" if the facts are known. @param {Log} log @param {...Fact} facts */
export function missing(log, ...facts) {
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
