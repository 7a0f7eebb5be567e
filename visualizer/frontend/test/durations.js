/** Prints the durations that the board writes for microseconds given as JSON: node durations.js "[1200]" */

import { duration } from "../src/model/duration.ts";

console.log(JSON.stringify(JSON.parse(process.argv[2]).map(duration)));
