/** The clauses and facts of a step's sentence. Its wording is in `wording.snapshot.json`. */

import assert from "node:assert/strict";
import test from "node:test";
import { compose, plain, sentence } from "../../src/model/index.ts";
import { assertNames, names } from "../facts.js";
import { FAILURE, scenes } from "./scenes.js";

/** A scene's frame, the kinds of clauses in its sentence, and the sentence: the lead and the rest. */
function tell(name) {
  const { model, step } = scenes[name];
  const frame = model.frame(step);
  const { kinds, spans } = compose(frame);
  const lead = spans.find(({ bold, request }) => bold && request === undefined).text;
  return { frame, kinds, spans, lead, text: plain(spans) };
}

/** Checks which clauses a scene's sentence has, and that it names the facts. */
function tells(name, kinds, ...facts) {
  const told = tell(name);
  assert.deepEqual(told.kinds, kinds, `${name}: ${told.text}`);
  assertNames(told.text, scenes[name].step, ...facts);
  return told;
}

test("`sentence` returns the spans of `compose`", () => {
  for (const { model, step } of Object.values(scenes))
    assert.deepEqual(sentence(model, step), compose(model.frame(step)).spans);
});

test("every lead names its step and, once it is scheduled, tokens and budget", () => {
  for (const [name, { model, step }] of Object.entries(scenes)) {
    const frame = model.frame(step);
    const { text } = tell(name);
    assertNames(text, step);
    if (frame.story.rows.length) assertNames(text, frame.budget.tokens, frame.budget.budget);
  }
});

test("nothing special", () => {
  tells("a prompt", ["firstTokens"], "r1", 5, 8);
  tells("one token", ["routine"], "r1", 1, 8);
});

test("a hit; a label is the name", () => {
  const { spans } = tells("a hit", ["admitted"], "Ada", 1, 2, 8, 4, 5);
  assert.deepEqual(
    spans.filter((span) => span.request),
    [
      { text: "Ada", request: 2, bold: true },
      { text: "Ada", request: 2 },
    ],
  );
  assert.equal(spans[0].bold, true);
  assert.equal(spans.at(-1).bold, undefined);
});

test("a wait that ends with a hit", () => {
  tells("a wait, then a hit", ["admitted", "cut"], "r2", 2, 4, 5);
});

test("a wait for more than one reason names none", () => {
  tells("a wait for two reasons", ["admitted", "cut"], "r2", 2, 4, 5);
  const [one, two] = ["a wait, then a hit", "a wait for two reasons"].map(
    (name) => tell(name).text,
  );
  assert.ok(two.length < one.length, "the same without the reason");
});

test("a preemption names the request that needs blocks, the victim, and the fate of the blocks", () => {
  const { frame } = tells("a preemption", ["preempted"], "r1", "r2", 3, 2, 1);
  const [{ by, request, free, evictable }] = frame.story.preemptions;
  assert.deepEqual([by, request, free, evictable], [1, 2, 0, 0]);
});

test("many requests that take a victim's blocks are counted, not named", () => {
  const { text } = tells("a preemption that many live on", ["preempted"], "r1", "r5", 5, 4, 1);
  for (const taker of ["r2", "r3", "r4"]) assert.ok(!names(text, taker), text);
});

test("requests that wait behind a preemption", () => {
  tells("waiting behind a preemption", ["preempted", "waiting"], "r3", "r4", "r5");
});

test("preempting itself", () => {
  const { frame, text } = tells("preempting itself", ["preempted"], "r1", 3, 2, 1);
  assert.deepEqual(
    frame.story.preemptions.map(({ by, request }) => [by, request]),
    [[1, 1]],
  );
  assert.equal(text.split("r1").length, 2, "it is named once");
});

test("a preemption although some blocks are available", () => {
  const name = "preempted although blocks can be evicted";
  const { frame } = tells(name, ["preempted"], "r2", 3, 2, 4);
  assert.equal(frame.story.preemptions[0].evictable, 2);
});

test("a resume states how many tokens are recomputed", () => {
  tells("a resume", ["resumed"], "r2", 1, 2, 3, 8, 4, 6);
});

test("an eviction states the need, the free blocks and the idle time", () => {
  const { frame } = tells("an eviction", ["evicted"], "r2", 5, 3, 2);
  assert.deepEqual(
    frame.story.evictions.map(({ since, free }) => [since, free]),
    [[2, 3]],
  );
});

test("a cleared cache and an abort, between two steps", () => {
  const { frame } = tells("a cleared cache", ["cleared"], 2);
  assert.equal(frame.status, "pending");
  tells("an abort", ["aborted", "waiting"], "r2", "r3");
});

test("an adopted prefix, what was evicted for it, and the request that finds it", () => {
  const { frame } = tells("an adopted prefix", ["adopted", "admitted"], 5, "replica 0", 2);
  assert.deepEqual(
    frame.story.admissions.map(({ prefix }) => prefix),
    [{ adopted: 6, source: "replica 0" }],
  );
});

test("a fork, and the copies on write after it", () => {
  tells("a fork", ["forked"], "r1", "r2", "r3", 3, 2);
  tells("two copies", ["copied"], "r1", "r2", 1, 2, 3);
  tells("a copy", ["copied"], "r1", "r2", "r3", 1, 2);
});

test("a prompt that the budget cuts, and a running request that gets nothing", () => {
  tells("a prompt that is cut", ["cut"], "r1", 2, 3, 5);
  tells("a request that gets nothing", ["cut", "stalled"], "r2");
});

test("a draft model that fails", () => {
  const { text } = tells("a failed draft pass", ["draftsFailed"], "draft model", FAILURE);
  assert.doesNotMatch(text, /ends/);
});

test("drafts", () => {
  tells("a draft accepted", ["drafted"], 1, 2, 3, 8);
  const { frame } = tells("no draft accepted", ["drafted"], 2);
  assert.deepEqual(
    frame.story.gains.map(({ accepted }) => accepted),
    [0],
  );
});

test("forced tokens", () => {
  tells("a forced token", ["forced"], "r1", 1);
});

test("requests that computed the same blocks", () => {
  tells("two blocks computed twice", ["joined"], "r2", 2);
  tells("one block computed twice", ["joined"], "r2", 1);
  // A fork's sibling joins blocks that it shares already, which needs no clause.
  assert.ok(!tell("a sibling joins its own blocks").kinds.includes("joined"));
});

test("endings", () => {
  const ends = (name, ...facts) => {
    const { kinds, text } = tell(name);
    assert.equal(kinds.at(-1), "finished");
    assertNames(text, ...facts);
  };
  ends("an end at the limit", "r1", 2);
  ends("a stop", "r1");
  ends("a stop and a limit", "r1", "r2", 4);
  ends("two limits", "r1", "r2");
});

test("a failed forward pass", () => {
  const { text } = tells("a failed forward pass", ["failed"], "r1", FAILURE.split(" be ")[0]);
  assert.ok(!text.includes(FAILURE), "a long message is cut");
});

test("a step whose planning failed", () => {
  const { frame } = tells("a step given up", []);
  assert.equal(frame.status, "finished");
});

test("the head of the queue waits for a reason, with its need and the supply", () => {
  const why = (name, reason, ...facts) => {
    const { frame, text } = tells(name, ["waiting"], "r2", ...facts);
    assert.equal(frame.waitOf(2).reason, reason);
    assert.ok(text.includes(frame.obstacle), text);
  };
  why("batch full", "batch_full", 3);
  why("batch full, four behind", "batch_full", 3, "r3", "r4", 2);
  why("a batch of one is full", "batch_full", 1);
  why("too few seats", "batch_full", 3, 1);
  why("budget spent", "token_budget", 8, "r3");
  why("budget too small", "token_budget", 8, 7);
  why("too few free blocks", "no_free_blocks", 4, 3);
  why("too few unreserved blocks", "reserved_blocks", 4, 1);
  why("all blocks reserved", "reserved_blocks", 4);
  why("put off by the policy", "policy");
});

test("a deferred request blocks no other, and the head of the queue waits for its own reason", () => {
  const all = tells("all put off", ["waiting"], "r2", "r3", 2);
  assert.deepEqual(
    [2, 3, 4, 5].map((id) => all.frame.waitOf(id).reason),
    Array(4).fill("policy"),
  );
  const one = tells("one put off, one blocked", ["waiting", "waiting"], "r2", "r3", 3, "r4", "r5");
  assert.deepEqual(
    [2, 3, 4, 5].map((id) => Object.values(one.frame.waitOf(id))),
    [["policy", 2], ...Array(3).fill(["batch_full", 3])],
  );
});

test("cached blocks: how many can be evicted, and how many are the request's own prefix", () => {
  tells("cached blocks can be evicted", ["waiting"], 7, 4, 2);
  tells("cached blocks are its own prefix", ["waiting"], 5, 4, 2);
  tells("one cached block is its own prefix", ["waiting"], 6, 4, 1);
});

test("a static batch: which request waits, and how many seats are empty", () => {
  tells("a static batch", ["waiting", "freeSeats"], "r5", 3, 4);
});

test("a sentence always fits in two lines", () => {
  const { text, kinds } = tell("a crowd with long names");
  assert.ok(text.length <= 250, `${text.length}: ${text}`);
  assert.ok(kinds.includes("preempted"));
});
