/**
 * Checks every step of every log of a folder: what the model says must agree with the log. Exits with an error at
 * the first difference. tests/visualizer/test_golden_fold.py calls it on random workloads.
 *
 *   node truths.js FOLDER
 */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { compose, Model, plain, State, sentence } from "../../src/model/index.ts";
import { LEVELS } from "../../src/model/sentence.ts";
import { assertNames } from "../facts.js";
import { core } from "./core.js";
import { parseLog } from "./read.js";

const [folder] = process.argv.slice(2);
const MOST_LETTERS = 250;

function sum(/** @type {number[]} */ values) {
  return values.reduce((total, value) => total + value, 0);
}

/** The facts of each step, counted without the model. */
function recount(/** @type {any[]} */ events) {
  const steps = new Map();
  const state = new State();
  const room = (/** @type {any} */ core) => ({
    free: core.refs.filter((refs) => refs === 0).length,
    evictable: core.nodes
      .flatMap((/** @type {any} */ { blocks, copies }) => [...blocks, ...copies])
      .filter((/** @type {number} */ block) => core.refs[block] === 1).length,
  });
  let firstLack = null;
  /** @type {{request: number, index: number}[]} */
  let allocated = [];
  for (const event of events) {
    if (event.type === "step_started") {
      firstLack = null;
      allocated = [];
    }
    if (event.type === "blocks_allocated") {
      const { length } = state.request(event.request).block_table;
      for (const at of event.blocks.keys())
        allocated.push({ request: event.request, index: length + at });
    }
    if (event.type === "preempted") firstLack ??= room(core(state));
    if (event.type === "step_scheduled") {
      const values = core(state);
      const { rows, blocked } = event;
      const { free, evictable } = room(values);
      // Drafts get their blocks after the head of the queue was considered.
      const ends = new Map(
        rows.map(([id, start, count, drafts = []]) => [id, start + count - drafts.length]),
      );
      const forDrafts = allocated.filter(
        ({ request, index }) => index * state.blockSize >= ends.get(request),
      );
      const before = { free: free + forDrafts.length, evictable };
      steps.set(state.step, { rows, blocked, waiting: values.waiting, firstLack, ...before });
    }
    state.apply(event);
  }
  return steps;
}

function checkBlocks(/** @type {import("../../src/model/frame.ts").Frame} */ frame) {
  const { blocks, counts, state } = frame;
  const values = core(state);
  const inTree = new Set(values.nodes.flatMap(({ blocks, copies }) => [...blocks, ...copies]));
  for (const kind of ["free", "cached", "shared", "unshared"]) {
    assert.equal(blocks.filter((block) => block.kind === kind).length, counts[kind], kind);
  }
  for (const block of blocks) {
    const holders = values.requests.filter(({ block_table }) => block_table.includes(block.id));
    assert.deepEqual(
      block.owners,
      holders.map(({ id }) => id),
    );
    const holds = values.holds.filter(({ block_table }) => block_table.includes(block.id));
    assert.equal(block.refs, holders.length + holds.length + Number(inTree.has(block.id)));
    assert.equal(block.node > 0, inTree.has(block.id));
    assert.equal(frame.blockTexts(block.id).length, block.filled);
    if (block.mark === "freed") assert.equal(block.kind, "free");
    if (block.kind === "free") assert.equal(block.filled, 0);
  }
}

function checkTree(/** @type {import("../../src/model/frame.ts").Frame} */ frame) {
  const values = core(frame.state);
  // With the hash cache a node is a block, and the drawn tree joins chains of them.
  const byId = new Map(values.nodes.map((node) => [node.id, node]));
  const drawn = new Set([0, ...frame.tree.map(({ id }) => id)]);
  assert.equal(drawn.size, frame.tree.length + 1);
  for (const node of frame.tree) {
    const chain = [byId.get(node.id)];
    if (frame.state.isHashed)
      while (!drawn.has(chain[0].parent)) chain.unshift(byId.get(chain[0].parent));
    assert.equal(node.parent, chain[0].parent);
    assert.deepEqual(
      node.blocks,
      chain.flatMap(({ blocks }) => blocks),
    );
    for (const one of chain) byId.delete(one.id);
    const readers = node.owners.length + node.holders.length;
    assert.equal(readers, node.lock, "a lock has as many readers as it counts");
    assert.equal(node.texts.length, node.blocks.length * frame.state.blockSize);
  }
  assert.deepEqual([...byId.keys()], [0], "each node is drawn once");
  for (const tail of frame.tails) {
    const held = frame.path(tail.request).blocks.concat(tail.blocks);
    assert.deepEqual(held, frame.table(tail.request).blocks);
  }
}

function checkSentence(
  /** @type {any} */ model,
  /** @type {any} */ frame,
  /** @type {any} */ truth,
) {
  for (const level of LEVELS) {
    const { kinds, spans } = compose(frame, level);
    const text = plain(spans);
    assertNames(text, frame.step);
    assert.match(text, /\.$/);
    assert.doesNotMatch(text, /undefined|null|NaN|object| {2}| [.,;:]/);
    assert.doesNotMatch(
      text,
      /\b1 (tokens|blocks|steps|drafts|seats|decodes)\b|\b0 (tokens?|blocks?|steps?|drafts?|seats|decodes?)\b/,
    );
    assert.ok(text.length <= MOST_LETTERS, `${text.length} letters: ${text}`);
    for (const span of spans) {
      if (span.request !== undefined) assert.equal(span.text, model.request(span.request).name);
    }
    if (frame.story.preemptions.length)
      assert.ok(kinds.includes("preempted"), "the sentence always tells of a preemption");
  }
  const text = plain(compose(frame).spans);
  if (!truth) return;

  const { rows, blocked, waiting, free, evictable } = truth;
  const tokens = sum(rows.map(([, , count]) => count));
  if (rows.length) assertNames(text, tokens, model.settings.token_budget);
  const decodes = frame.story.rows.filter(({ kind }) => kind === "decode").length;
  if (decodes) assertNames(text, decodes);

  const [first] = frame.story.preemptions;
  if (first) {
    const { firstLack } = truth;
    assert.deepEqual([first.free, first.evictable], [firstLack.free, firstLack.evictable]);
    assertNames(text, ...[first.free, first.evictable].filter(Boolean));
    const victims = frame.story.preemptions.filter(({ by }) => by === first.by);
    const lost = new Set(victims.flatMap(({ table }) => table)).size;
    if (lost > 1) assertNames(text, lost);
    if (lost > 1 && victims.length === 1) {
      const { fates } = frame.table(first.request);
      for (const fate of ["others", "cached", "free"]) {
        const number = fates.filter((one) => one.fate === fate).length;
        if (number && number < fates.length) assertNames(text, number);
      }
    }
  }

  if (blocked) {
    const [head, reason, behind, need, have] = blocked;
    assert.equal(waiting.length, behind + 1);
    if (reason === "no_free_blocks" || reason === "whole_sequence") {
      const { story } = frame;
      assert.deepEqual([story.blocked.need, story.blocked.have], [need, have]);
      assert.deepEqual([story.blocked.free, story.blocked.evictable], [free, evictable]);
      const others = have - free;
      const own = evictable - others;
      assert.ok(others >= 0 && own >= 0, "what can be had is free, or cached and not its own");
      const told = [need > 1 && need, free, others, own > 1 && own].filter(Boolean);
      assertNames(frame.obstacle, ...told);
    }
    const line = frame.decisions.find(
      ({ kind, requests }) => kind === "waits" && requests.includes(head),
    );
    assert.ok(line, "the head of the queue has its line");
    const lines = frame.decisions.filter(({ kind }) => kind === "waits");
    assert.deepEqual(new Set(lines.flatMap(({ requests }) => requests)), new Set(waiting));
  } else {
    assert.deepEqual(waiting, []);
  }
}

function checkDecisions(
  /** @type {any} */ model,
  /** @type {any} */ frame,
  /** @type {any} */ truth,
) {
  const rows = frame.decisions.filter(({ tokens }) => tokens !== undefined);
  assert.deepEqual(
    rows.map(({ request, tokens }) => [request, tokens]),
    (truth?.rows ?? []).map(([request, , count]) => [request, count]),
  );
  let left = model.settings.token_budget;
  for (const row of rows) assert.equal(row.left, (left -= row.tokens));
  assert.ok(left >= 0);
  // The reason "batch full" and the panel's header state the same number of seats.
  const { taken, all } = frame.seats;
  assert.ok(taken <= all);
  const [, reason, , need, have] = truth?.blocked ?? [];
  if (reason === "batch_full") {
    assert.equal(all - taken, have, "seats that are free");
    assert.ok(need > have);
  }
  // A block that could not be evicted before a preemption but is evicted after it was the victim's.
  for (const { request, spans } of rows) {
    const evictions = frame.story.evictions.filter(({ neededBy }) => neededBy === request);
    const evicted = evictions.flatMap(({ blocks }) => blocks);
    const victims = frame.story.preemptions.filter(({ table }) =>
      table.some((one) => evicted.includes(one)),
    );
    assert.equal(/left by/.test(plain(spans)), victims.length > 0, plain(spans));
    for (const victim of victims)
      assert.ok(plain(spans).includes(model.request(victim.request).name));
  }
  assert.ok(frame.decisions.filter(({ hot }) => hot).length <= 1);
  for (const one of [...frame.decisions, ...frame.outcomes]) {
    assert.ok(one.spans.length);
    assert.equal(typeof model.event(one.seq)?.type, "string");
  }
}

function checkMeasures(/** @type {any} */ model, /** @type {any} */ frame) {
  const at = frame.step - model.firstStep;
  const { measures } = model;
  const { counts, budget, story } = frame;
  assert.equal(measures.used.at(at), counts.shared + counts.unshared);
  assert.equal(measures.cached.at(at), counts.cached);
  assert.equal(measures.free.at(at), counts.free);
  assert.equal(measures.tokens.at(at), budget.tokens);
  assert.equal(measures.waiting.at(at), frame.waiting.length);
  assert.equal(measures.running.at(at), frame.running.length);
  assert.equal(measures.preempted.at(at), story.preemptions.length);
  assert.equal(
    measures.prefill.at(at) + measures.catchup.at(at) + measures.decode.at(at),
    budget.tokens,
  );
}

/** Every step of a request is in exactly one segment, or in none if it is new or just forked. */
function checkRequestSpan(/** @type {any} */ model, /** @type {any} */ span) {
  const at = new Map();
  for (const { kind, from, to } of span.segments) {
    for (let step = from; step <= (to ?? model.lastStep); step++) {
      assert.ok(!at.has(step), `${span.short} is two things in step ${step}`);
      at.set(step, kind);
    }
  }
  assert.equal(span.tokens.length, span.promptLength + span.tokenSteps.length);
  for (let step = model.firstStep; step <= model.lastStep; step++) {
    const { kind } = model.frame(step).phase(span.id);
    const segment = at.get(step);
    if (kind === "waits") assert.equal(segment, "waiting");
    if (["prefill", "decode", "catchup", "stalled", "preempted"].includes(kind)) {
      assert.equal(segment, kind, `${span.short} in step ${step}`);
    }
    if (kind === "future") assert.equal(segment, undefined);
  }
}

function checkTokens(/** @type {any} */ model, /** @type {any} */ frame) {
  for (const { id } of model.requests) {
    const request = frame.state.requests.get(id);
    const { prompt, output } = frame.tokensOf(id);
    if (!request) continue;
    const texts = [...prompt, ...output].map(({ text }) => text);
    assert.deepEqual(texts, request.content.texts.slice(0, request.length));
    assert.ok(output.every(({ step }) => step <= frame.step));
  }
}

let frames = 0;
for (const name of readdirSync(folder).filter((file) => file.endsWith(".jsonl"))) {
  const { events } = parseLog(readFileSync(join(folder, name), "utf8"));
  const model = new Model(events);
  const truths = events[0].type === "run_started" ? recount(events) : new Map();
  let step = model.firstStep;
  try {
    for (; step <= model.lastStep; step++, frames++) {
      const frame = model.frame(step);
      const complete = frame.status !== "joined";
      checkBlocks(frame);
      checkTree(frame);
      checkMeasures(model, frame);
      checkTokens(model, frame);
      checkSentence(model, frame, truths.get(step));
      if (complete && truths.size) checkDecisions(model, frame, truths.get(step));
    }
    for (const span of model.requests) checkRequestSpan(model, span);

    // A live log that is read in pieces, with frames in between, ends in the same frames.
    const live = new Model();
    for (let at = 0; at < events.length; at += 7) {
      live.append(events.slice(at, at + 7));
      if (live.stepCount) sentence(live, live.lastStep);
    }
    assert.equal(live.stepCount, model.stepCount);
    for (step = model.lastStep; step >= model.firstStep; step -= 3) {
      assert.deepEqual(core(live.frame(step).state), core(model.frame(step).state));
      assert.equal(plain(sentence(live, step)), plain(sentence(model, step)));
    }
  } catch (error) {
    console.error(`${name}, step ${step}: ${error.message}`);
    throw error;
  }
}
console.log(frames);
