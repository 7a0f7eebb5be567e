/**
 * Prints the spans of each request of each log of a folder, as JSON by log and request.
 * tests/visualizer/test_golden_reading.py compares them with Python's.
 *
 *   node waterfalls.js FOLDER
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Model, plain } from "../../src/model/index.ts";
import { helped } from "../../src/model/waterfall_words.ts";
import { parseLog } from "./read.js";

const [folder] = process.argv.slice(2);
const said = {};
for (const name of readdirSync(folder).filter((file) => file.endsWith(".jsonl"))) {
  const model = new Model(parseLog(readFileSync(join(folder, name), "utf8")).events);
  const { waterfall } = model;
  const row = ({ request, spans, total, byCause, work, lost, ttft }) => ({
    helped: plain(helped({ request, spans })),
    spans: spans.map(({ start, end, cause, step, about }) => [start, end, cause, step, about]),
    total,
    byCause,
    work,
    lost,
    ttft,
  });
  said[name.replace(".jsonl", "")] = Object.fromEntries(
    waterfall.all().map((time) => [time.request.id, row(time)]),
  );
}
console.log(JSON.stringify(said));
