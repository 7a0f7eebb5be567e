/**
 * Prints the model's facts about each request of each log of a folder, as JSON by log and request: those that
 * `read(log).requests` has too. tests/visualizer/test_golden_fold.py compares the two.
 *
 *   node request_spans.js FOLDER
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Model } from "../../src/model/index.ts";
import { parseLog } from "./read.js";

const [folder] = process.argv.slice(2);
const said = {};
for (const name of readdirSync(folder).filter((file) => file.endsWith(".jsonl"))) {
  const { requests } = new Model(parseLog(readFileSync(join(folder, name), "utf8")).events);
  const row = ({ arrived, finished, preemptions, tokenSteps }) => ({
    arrived_step: arrived,
    finished_step: finished?.step ?? null,
    finish_reason: finished?.reason ?? null,
    first_token_step: tokenSteps[0] || null,
    output_tokens: tokenSteps.length,
    preemptions: preemptions.length,
  });
  said[name.replace(".jsonl", "")] = Object.fromEntries(
    requests.map((span) => [span.id, row(span)]),
  );
}
console.log(JSON.stringify(said));
