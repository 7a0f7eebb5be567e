/** Prints what the front page says of logs, for `tests/site/test_page_front.py`: `node told.js FILE...`. */

import { readFileSync } from "node:fs";
import { choicesOf } from "../../src/front/choices.ts";
import { partsOf, totalMs } from "../../src/front/parts.ts";
import { Run } from "../../src/front/run.ts";
import { stepOf, told } from "../../src/front/scenes.ts";
import { plain } from "../../src/model/words.ts";

const said = process.argv.slice(2).map((file) => {
  const run = Run.of(new Uint8Array(readFileSync(file)));
  const parts = partsOf(run);
  const scenes = [1, 2, 3, 4].map((scene) => {
    const step = stepOf(run, scene);
    const { what, why } = told(run, scene, step, 0);
    return { step, what: plain(what), why: plain(why), choices: choicesOf(run, scene) };
  });
  return { scenes, parts, total: totalMs(parts) };
});
process.stdout.write(JSON.stringify(said));
