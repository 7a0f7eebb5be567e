/**
 * Folds every log of a folder and writes, per log, a digest of the state after each event: the golden test
 * in tests/visualizer/test_golden_fold.py compares them with Python's fold.
 *
 *   node digests.js FOLDER         NAME.digests for each NAME.jsonl
 *   node digests.js FILE.jsonl K   prints the state after the first K events
 */

import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { State } from "../../src/model/index.ts";
import { core } from "./core.js";
import { parseLog } from "./read.js";

const [path, events] = process.argv.slice(2);

/** The engine's state, and what only viewers read. @param {State} state */
const facts = (state) => ({
  ...core(state),
  lanes: state.lanes,
  reported_blocks: state.nodes
    .list()
    .flatMap(({ id, hash, media }) => (hash ? [[id, hash, media]] : [])),
  waiting_count: state.reported?.waiting ?? null,
  expert_loads: state.expertLoads,
});

/** @param {State} state */
function digest(state) {
  return createHash("sha1")
    .update(JSON.stringify(facts(state)))
    .digest("hex");
}

/** @param {string} file */
function read(file) {
  return parseLog(readFileSync(file, "utf8")).events;
}

if (events !== undefined) {
  const state = new State();
  for (const event of read(path).slice(0, Number(events))) state.apply(event);
  console.log(JSON.stringify(facts(state)));
} else {
  for (const name of readdirSync(path).filter((file) => file.endsWith(".jsonl"))) {
    const state = new State();
    const digests = read(join(path, name)).map((event) => {
      state.apply(event);
      return digest(state);
    });
    writeFileSync(join(path, name.replace(/jsonl$/, "digests")), digests.join("\n"));
  }
}
