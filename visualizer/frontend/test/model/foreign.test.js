/** What the board says of another engine's log: inferred statements carry a half dot, unknown facts are no numbers. */

import assert from "node:assert/strict";
import test from "node:test";
import { describeLane } from "../../src/board/descriptions.ts";
import { find } from "../../src/board/search.ts";
import { compose, Model, plain } from "../../src/model/index.ts";
import { HALF_DOT, knowledgeWords, lacks, missing } from "../../src/model/knowledge.ts";
import { momentSteps, momentsAround } from "../../src/model/moments.ts";
import { RunSummary } from "../../src/model/run_summary.ts";
import { assertNames } from "../facts.js";
import { storytellers } from "../recorder.js";
import { foreign, SECRET } from "./foreign.js";

const LIMITS = { ttft: 150_000, itl: 40_000 };
const said = (model, step) => plain(compose(model.frame(step)).spans);
const decided = (model, step) =>
  model.frame(step).decisions.map(({ kind, spans }) => [kind, plain(spans)]);
const steps = ({ stepCount }) => Array.from({ length: stepCount }, (_, i) => i + 1);

const own = storytellers();
const preemption = own.requests.find(({ preemptions }) => preemptions.length).preemptions[0];
const wait = steps(own).find((step) => own.frame(step).story.blocked);

test("a log of our own engine has no mark at all, and knows every fact", () => {
  for (const step of steps(own)) {
    assert.ok(!said(own, step).includes(HALF_DOT));
    for (const [, words] of decided(own, step)) assert.ok(!words.includes(HALF_DOT));
  }
  assert.ok(!lacks(own, ...Object.keys(knowledgeWords.facts)));
  assert.equal(missing(own, "texts"), "");
});

test("recorded facts of a foreign log are told as those of our own", () => {
  const model = foreign({});
  for (const step of steps(own))
    assert.equal(decided(model, step).length, decided(own, step).length);
  assert.ok(!said(model, preemption.step).includes(HALF_DOT));
});

test("a half dot precedes each inferred reason for waiting, and no other decision", () => {
  const model = foreign({ waiting_reasons: "inferred" });
  for (const step of steps(model))
    for (const [kind, words] of decided(model, step))
      assert.equal(words.includes(HALF_DOT), kind === "waits", words);
  const { request } = model.frame(wait).story.blocked;
  const [, tip] = describeLane(
    model,
    wait,
    { step: wait, inPlot: true, span: model.request(request) },
    true,
  );
  assert.ok(tip.includes(HALF_DOT));
});

test("an inferred cause of a preemption follows the recorded fact", () => {
  const model = foreign({ preemption_causes: "inferred" });
  const words = said(model, preemption.step);
  const victim = model.frame(preemption.step).story.preemptions[0];
  assert.ok(words.indexOf(model.request(victim.request).name) < words.indexOf(HALF_DOT));
  assert.ok(words.indexOf(HALF_DOT) < words.lastIndexOf(model.request(victim.by).name));
});

test("without causes, victims and waiting requests are named, and nothing is made up", () => {
  const model = foreign({
    preemption_causes: "unknown",
    waiting_reasons: "unknown",
    eviction_causes: "unknown",
  });
  const frame = model.frame(preemption.step);
  const [victim] = frame.story.preemptions;
  assertNames(said(model, preemption.step), model.request(victim.request).name);
  const kinds = decided(model, preemption.step).map(([kind]) => kind);
  assert.ok(kinds.includes("preempted") && kinds.includes("waits"));
  for (const step of steps(model)) {
    const { evictions } = model.frame(step).story;
    const gone = evictions.reduce((sum, { blocks }) => sum + blocks.length, 0);
    const line = decided(model, step).find(([kind]) => kind === "evicted");
    assert.equal(Boolean(line), gone > 0);
    if (line) assertNames(line[1], gone);
    assert.doesNotMatch(said(model, step) + decided(model, step).join(), /r-1|NaN|undefined/);
  }
});

test("the time that requests waited counts even if the log does not say why", () => {
  const total = (model) => {
    const { waits, waited } = new RunSummary(model).of(LIMITS);
    return { waits: waits.map(({ cause }) => cause), waited };
  };
  const model = foreign({ waiting_reasons: "unknown" });
  assert.equal(total(model).waited, total(own).waited);
  assert.deepEqual(total(model).waits.toSorted(), ["preempted", "unknown"]);
  assert.ok(model.waitCauses.has("unknown"));
});

test("unknown tokens keep their number, and are neither shown, found nor compared", () => {
  const model = foreign(SECRET);
  assert.ok(missing(model, "texts").includes(model.source.recorder));
  for (const { id } of model.requests) {
    const frame = model.frame(model.lastStep);
    const [with_, without] = [own.frame(own.lastStep).tokensOf(id), frame.tokensOf(id)];
    assert.equal(without.prompt.length, with_.prompt.length);
    assert.equal(without.output.length, with_.output.length);
    const shown = [...without.prompt, ...without.output].map(({ text }) => text);
    assert.deepEqual(new Set(shown), new Set([""]));
    for (const { probability } of without.output) assert.equal(probability, null);
  }
  for (const query of ["-1", "the"])
    for (const found of find(model, query, 1))
      assert.ok(!["prompt", "output"].includes(found?.kind));
  for (const step of steps(model)) {
    const frame = model.frame(step);
    for (const id of frame.waiting) assert.equal(frame.path(id).tokens, 0);
    for (const { text } of frame.tree) assert.equal(text, "");
  }
});

test("a simulation did not record hashes", () => {
  assert.match(missing(foreign(SECRET), "texts"), /recorded only hashes/);
  const simulated = foreign({ ...SECRET, prefix_tree: "inferred" });
  assert.match(missing(simulated, "texts"), /did not record them/);
});

test("what a victim's blocks keep is told without tokens as with them", () => {
  const line = (model) => decided(model, preemption.step).find(([kind]) => kind === "preempted")[1];
  const numbers = (words) => words.match(/\d+/g).slice(-2);
  assert.deepEqual(numbers(line(foreign(SECRET))).at(-1), numbers(line(own)).at(-1));
});

test("token ids without texts stand in for them", () => {
  const model = foreign({ texts: "unknown" });
  const [{ id, tokens }] = model.requests;
  const { prompt } = model.frame(model.lastStep).tokensOf(id);
  assert.deepEqual(
    prompt.slice(0, 3).map(({ text }) => Number(text)),
    tokens.slice(0, 3),
  );
});

test("missing messages are a moment, a sentence and a tip, in their step", () => {
  const step = 20;
  const model = foreign({}, step);
  assert.deepEqual([...model.gaps.keys()], [step]);
  assert.ok(momentSteps(model).includes(step));
  assert.equal(momentsAround(model, step).here.kind, "missing");
  assertNames(said(model, step), 7, "disk");
  assertNames(describeLane(model, step, { step, inPlot: true }, false).join(), 7, "disk");
  assert.equal(model.stepCount, own.stepCount);
});

test("long numbers in labels become short names, each its own", () => {
  const labels = [
    "cmpl-3f1e2a4b5c6d7e8f3f1e2a4b5c6d7e8f-0",
    "chatcmpl-3f1e9a4b-5c6d-7e8f-3f1e-2a4b5c6d7e8f",
    "cmpl-3f1e9b4b5c6d7e8f3f1e2a4b5c6d7e8f-0",
    "cmpl-3f1e9b4b5c6d7e8f3f1e2a4b5c6d7e8f-0",
    "request-20261123-1200",
    "benchmark-12",
    "cmpl-ask-7-0-8935272d",
    "chatcmpl-chat-131-bc39cfc7",
  ];
  const named = new Model([
    {
      type: "run_started",
      schema: 2,
      settings: { num_blocks: 1 },
      classes: {},
      model: {},
      tokenizer: {},
      clock: "",
    },
    ...labels.map((label, i) => ({
      ...{ type: "request_arrived", request: i + 1, prompt: [-1], texts: [""], label },
      ...{ max_tokens: 1, n: 1, priority: 0, sampling: {} },
    })),
  ]);
  const names = named.requests.map(({ name }) => name);
  assert.deepEqual(names.slice(0, 4), ["3f1e", "3f1e9", "3f1e9b", "3f1e9b 2"]);
  assert.equal(new Set(names).size, labels.length);
  assert.deepEqual(names.slice(5), [labels[5], "ask-7", "chat-131"]); // without what vLLM adds
});
