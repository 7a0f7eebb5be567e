/**
 * Prints, as JSON, the figures of each log of a folder. tests/visualizer/test_golden_summary.py compares them.
 *
 *   node summaries.js FOLDER
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Model } from "../../src/model/index.ts";
import { RunSummary } from "../../src/model/run_summary.ts";
import { parseLog } from "./read.js";

const [folder] = process.argv.slice(2);
const summaries = {};
for (const file of readdirSync(folder).filter((name) => name.endsWith(".jsonl"))) {
  const model = new Model(parseLog(readFileSync(join(folder, file), "utf8")).events);
  const summary = new RunSummary(model).of({ ttft: 50_000, itl: 12_000 });
  const table = (percentiles) =>
    Object.fromEntries(percentiles.map(({ name, value }) => [name, value]));
  summaries[file.slice(0, -".jsonl".length)] = {
    ...summary,
    ttft: table(summary.ttft),
    itl: table(summary.itl),
  };
}
console.log(JSON.stringify(summaries));
