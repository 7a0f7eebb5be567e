/**
 * Prints, as JSON, the step at which a board of each log of a folder opens, and the request that it selects.
 *
 *   node openings.js FOLDER
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Model, openingRequest, openingStep } from "../../src/model/index.ts";
import { parseLog } from "./read.js";

const [folder] = process.argv.slice(2);
const openings = {};
for (const file of readdirSync(folder).filter((name) => name.endsWith(".jsonl"))) {
  const model = new Model(parseLog(readFileSync(join(folder, file), "utf8")).events);
  const step = model.stepCount ? openingStep(model) : 0;
  openings[file.slice(0, -".jsonl".length)] = [step, openingRequest(model)];
}
console.log(JSON.stringify(openings));
