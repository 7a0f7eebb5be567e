/**
 * Prints what the front end says of the expert loads of each step of a log, as JSON. The golden test in
 * tests/visualizer/test_golden_fold.py compares it with Python's words.
 *
 *   node loads.js FILE.jsonl
 */

import { readFileSync } from "node:fs";
import { loadWords } from "../../src/model/expert_loads.ts";
import { Model } from "../../src/model/index.ts";
import { stepsOf } from "./events.js";
import { parseLog } from "./read.js";

const { events } = parseLog(readFileSync(process.argv[2], "utf8"));
const model = new Model(events);
const said = stepsOf(model).flatMap(({ step }) => {
  const { loads } = model.frame(step).story;
  return loads ? [[loads.step, loadWords(loads.layers)]] : [];
});
console.log(JSON.stringify([...said, ["all", loadWords(model.expertLoads)]]));
