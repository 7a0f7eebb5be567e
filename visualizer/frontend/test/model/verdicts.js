/**
 * Prints why the browser refuses each line of a file, or null where it takes the line for an event.
 *
 *   node verdicts.js log|cluster FILE
 */

import { readFileSync } from "node:fs";
import { VOCABULARY as CLUSTER } from "../../src/cluster/vocabulary.ts";
import { checkerOf } from "../../src/model/log.ts";
import { VOCABULARY } from "../../src/model/vocabulary.ts";

const [kind, file] = process.argv.slice(2);
const problemOf = checkerOf(kind === "log" ? VOCABULARY : CLUSTER);
const lines = readFileSync(file, "utf8").split("\n");
process.stdout.write(JSON.stringify(lines.map((line) => problemOf(JSON.parse(line)))));
