/** The words of texts that name a term. `visualizer/reading/terms.json` has what each term means. */

import type terms from "../../../reading/terms.json";
import { v } from "../board/patch_children.ts";

export type Term = keyof typeof terms;

/** Words of sentences and names, longer ones first, and their terms. A plural has an s. */
const WORDS: Record<string, Term> = {
  "block table": "block table",
  "computed again": "recompute",
  "catch up": "recompute",
  "is the limit": "regime",
  "prefix hit": "hit",
  "in the cache": "hit",
  "cache keep": "radix tree",
  preemption: "preemption",
  preempted: "preemption",
  evicted: "eviction",
  waited: "waiting",
  waiting: "waiting",
  wait: "waiting",
  budget: "token budget",
  prefill: "prefill",
  decode: "decode",
  copied: "copy on write",
  block: "KV block",
  token: "token",
  batch: "batch",
  draft: "draft",
  chunk: "chunk",
  seat: "seat",
  TTFT: "TTFT",
  ITL: "ITL",
};
/** A word, and the mark after it, which begins no line. */
const FIND = new RegExp(`\\b((?:${Object.keys(WORDS).join("|")})s?)\\b([.,:;]?)`);
const termOf = (word: string): Term | undefined => WORDS[word.replace(/s$/, "")];

/** The first term of a painted text: most texts are painted in every frame. */
const paintedTerms: Map<string, Term | null> = new Map();
const PAINTED: Record<string, Term> = { memory: "KV block", cached: "hit" };

export function paintedTerm(text: string) {
  let term = paintedTerms.get(text);
  if (term === undefined) {
    const word = FIND.exec(text)?.[1] ?? /\b(memory|cached)\b/.exec(text)?.[1] ?? "";
    term = termOf(word) ?? PAINTED[word] ?? null;
    if (paintedTerms.size > 2000) paintedTerms.clear();
    paintedTerms.set(text, term);
  }
  return term;
}

/** A text with its terms as buttons: each term once, where `seen` does not have it yet. */
export function withTerms(text: string, seen: Set<Term> = new Set()) {
  return text.split(FIND).map((part, i, parts) => {
    if (i % 3 === 2) return "";
    if (i % 3 === 0) return part;
    const mark = parts[i + 1];
    const term = termOf(part);
    if (!term || seen.has(term)) return part + mark;
    seen.add(term);
    const button = v("button.term", { "data-term": term }, part);
    return mark ? v("span.together", button, mark) : button;
  });
}
