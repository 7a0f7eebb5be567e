/**
 * The board's wording, one example per kind of sentence: the only test that pins phrases. After a change of words
 *
 *     UPDATE_WORDING=1 node --test visualizer/frontend/test/wording.test.js
 *
 * renews the file; read the diff.
 */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import test from "node:test";
import { describeBlock, describeLane } from "../src/board/descriptions.ts";
import { rangeWords } from "../src/board/range.ts";
import { countWords } from "../src/drawing/lane_words.ts";
import { compose, Model, plain, reasonWords, sentence } from "../src/model/index.ts";
import { HALF_DOT, missing } from "../src/model/knowledge.ts";
import { foreign, SECRET } from "./model/foreign.js";
import { parseLog } from "./model/read.js";
import { scenes } from "./model/scenes.js";

const FILE = new URL("./wording.snapshot.json", import.meta.url);
const log = readFileSync(new URL("./storytellers.jsonl", import.meta.url), "utf8");
const storytellers = new Model(parseLog(log).events);

const frames = Object.values(scenes).map(({ model, step }) => model.frame(step));
const everywhere = [
  ...frames,
  ...Array.from({ length: storytellers.stepCount }, (_, at) => storytellers.frame(at + 1)),
];

/** The first text of each kind. */
function eachOnce(found) {
  const texts = {};
  for (const [kind, text] of found) texts[kind] ??= text;
  return texts;
}

const causes = (knowledge) => ({
  waiting_reasons: knowledge,
  preemption_causes: knowledge,
  eviction_causes: knowledge,
});
const secret = foreign({ ...SECRET, ...causes("inferred") }, 20);
const unexplained = foreign({ ...SECRET, ...causes("unknown") });

const segments = [...new Set(frames.map(({ model }) => model)), storytellers].flatMap((model) =>
  model.requests.flatMap((span) => span.segments.map((segment) => ({ model, span, segment }))),
);

const wording = {
  sentences: Object.fromEntries(
    Object.entries(scenes).map(([name, { model, step }]) => [name, plain(sentence(model, step))]),
  ),
  "sentences of the lanes": Object.fromEntries(
    frames.map((frame, at) => [Object.keys(scenes)[at], plain(compose(frame, "lanes").spans)]),
  ),
  decisions: eachOnce(
    everywhere.flatMap(({ decisions }) => decisions.map(({ heat, spans }) => [heat, plain(spans)])),
  ),
  outcomes: eachOnce(
    everywhere.flatMap(({ outcomes }) => outcomes.map(({ kind, spans }) => [kind, plain(spans)])),
  ),
  reasons: reasonWords,
  lanes: eachOnce(
    segments.map(({ model, span, segment: { kind, from } }) => [
      kind,
      describeLane(model, from, { step: from, inPlot: true, span }, true).join("; "),
    ]),
  ),
  blocks: eachOnce(
    storytellers.frame(30).blocks.map(({ id, kind }) => [
      kind,
      describeBlock(storytellers, storytellers.frame(30), id)
        .map((line) => line.text ?? line)
        .join("; "),
    ]),
  ),
  "another engine's log": {
    missing: missing(secret, "texts"),
    "a gap": plain(sentence(secret, 20)),
    ...eachOnce(
      Array.from({ length: secret.stepCount }, (_, at) => secret.frame(at + 1)).flatMap(
        ({ decisions }) =>
          decisions
            .map(({ kind, spans }) => [`inferred: ${kind}`, plain(spans)])
            .filter(([, words]) => words.includes(HALF_DOT)),
      ),
    ),
    "an inferred preemption": plain(sentence(secret, 30)),
    "an unexplained preemption": plain(sentence(unexplained, 30)),
  },
  "a step": describeLane(storytellers, 30, { step: 30, inPlot: true }, false).join("; "),
  "a range": rangeWords(storytellers, [1, 53]),
  "a lane's first prefill": countWords(
    {
      scale: { x: (step) => 10 * step, end: (step) => 10 * step + 10, width: 10 },
      model: { lastStep: 90 },
    },
    { segments: [{ kind: "prefill", from: 1, to: 1, count: 40, found: 0 }] },
    0,
    20,
    { words: 8, over: 12 },
  ).long,
};

test("the wording equals the snapshot", () => {
  if (process.env.UPDATE_WORDING) writeFileSync(FILE, `${JSON.stringify(wording, null, 2)}\n`);
  assert.deepEqual(wording, JSON.parse(readFileSync(FILE, "utf8")));
});
