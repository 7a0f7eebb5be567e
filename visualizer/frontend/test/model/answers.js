/**
 * Prints why each request of each log of a folder missed the cache, and the queue of each step, as JSON.
 * tests/visualizer/test_golden_reading.py compares them with Python's.
 *
 *   node answers.js FOLDER
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Model, plain } from "../../src/model/index.ts";
import { lacks } from "../../src/model/knowledge.ts";
import { stuck } from "../../src/model/stuck.ts";
import { causeRows } from "../../src/model/waterfall_words.ts";
import { missedWords, whyMissed } from "../../src/model/why_missed.ts";
import { stepsOf } from "./events.js";
import { parseLog } from "./read.js";

const [folder] = process.argv.slice(2);
const said = {};
for (const name of readdirSync(folder).filter((file) => file.endsWith(".jsonl"))) {
  const model = new Model(parseLog(readFileSync(join(folder, name), "utf8")).events);
  const asked = lacks(model, "cached_tokens") ? [] : model.requests;
  const missed = asked.map(({ id }) => {
    const answer = whyMissed(model, id);
    const words = missedWords(model, answer).slice(1).map(plain);
    return { ...answer, words };
  });
  const queues = stepsOf(model)
    .filter(({ scheduled }) => scheduled !== null)
    .map(({ step }) => [step, stuck(model, step)]);
  const marks = model.waterfall
    .all()
    .map((time) => [time.request.id, causeRows(time, model.source).map(({ mark }) => mark)]);
  said[name.replace(/\.jsonl$/, "")] = { missed, queues, marks };
}
console.log(JSON.stringify(said));
