/** The terms of the board: their words are the glossary's, and their numbers those of the step. */

import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import test from "node:test";
import { numbersOf } from "../src/board/terms.ts";
import { withTerms } from "../src/drawing/terms.ts";
import { compose } from "../src/model/index.ts";
import { LEVELS } from "../src/model/sentence.ts";
import { assertNames } from "./facts.js";
import { scenes } from "./model/scenes.js";

const ROOT = new URL("../../../", import.meta.url);
const FILE = new URL("visualizer/reading/terms.json", ROOT);
const terms = JSON.parse(readFileSync(FILE, "utf8"));

test("a card has the glossary's words; UPDATE_WORDING=1 renews them", () => {
  const glossary = readFileSync(new URL("docs/glossary.md", ROOT), "utf8");
  const rows = [...glossary.matchAll(/^\| \*\*(.+?)\*\*.*? \| (.+) \|$/gm)].reverse();
  const meanings = Object.fromEntries(rows.map(([, term, meaning]) => [term, meaning]));
  const expected = Object.fromEntries(
    Object.entries(terms).map(([term, { lesson }]) => [term, { meaning: meanings[term], lesson }]),
  );
  if (process.env.UPDATE_WORDING) writeFileSync(FILE, `${JSON.stringify(expected, null, 2)}\n`);
  else assert.deepEqual(terms, expected);
  for (const { lesson } of Object.values(expected))
    assert.ok(existsSync(new URL(`notebooks/${lesson}.ipynb`, ROOT)), lesson);
});

/** The words of a part, and the terms in it: a mark after a term stands beside it, in a part of both. */
const wordsOf = (part) => part.children?.map(wordsOf).join("") ?? part;
const termsOf = ({ attributes, children = [] }) =>
  [attributes?.["data-term"], ...children.flatMap(termsOf)].filter(Boolean);

test("each term of a text is marked once, in the singular and the plural", () => {
  const seen = new Set();
  const marked = (text) => withTerms(text, seen).flatMap(termsOf);
  assert.deepEqual(marked("2 decodes of 32 tokens; r1 needs a block"), [
    "decode",
    "token",
    "KV block",
  ]);
  assert.deepEqual(marked("3 blocks of its block table"), ["block table"]);
  assert.deepEqual(withTerms("blockade", new Set()), ["blockade"]);
  const [, together] = withTerms("a seat: none", new Set());
  assert.deepEqual([wordsOf(together), termsOf(together)], ["seat:", ["seat"]]);
});

test("every word of every sentence stays, and each term has numbers of the step", () => {
  const found = new Set();
  for (const { model, step } of Object.values(scenes)) {
    const frame = model.frame(step);
    for (const level of LEVELS)
      for (const { text } of compose(frame, level).spans) {
        const parts = withTerms(text, new Set());
        assert.equal(parts.map(wordsOf).join(""), text);
        for (const term of parts.flatMap(termsOf)) found.add(term);
      }
    const of = { model, store: { selected: model.requests[0]?.id ?? null }, run: { run: null } };
    for (const term of Object.keys(terms)) {
      const words = numbersOf(term, frame, of);
      assert.doesNotMatch(words, /undefined|NaN|object|\b1 (tokens|blocks|requests|drafts)\b/);
      if (words) assertNames(words, frame.step);
    }
  }
  for (const term of ["preemption", "KV block", "waiting", "decode", "draft"])
    assert.ok(found.has(term));
});

test("the numbers are the frame's", () => {
  const { model, step } = scenes["a preemption"];
  const frame = model.frame(step);
  const of = { model, store: { selected: 1 }, run: { run: null } };
  assertNames(numbersOf("preemption", frame, of), step, frame.story.preemptions.length);
  assertNames(numbersOf("seat", frame, of), step, frame.seats.taken, frame.seats.all);
  const { unshared, free } = frame.counts;
  assertNames(numbersOf("KV block", frame, of), unshared, free, model.settings.num_blocks);
});
