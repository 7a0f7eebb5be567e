/** The front page's run, its picture and its sentences, on a recorded log of four requests. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { choicesOf, consequence } from "../../src/front/choices.ts";
import { holdStep, longReading, sentAway, sharers, waitOf } from "../../src/front/facts.ts";
import { layoutOf } from "../../src/front/layout.ts";
import { overview } from "../../src/front/overview.ts";
import { partsOf, rounded, totalMs } from "../../src/front/parts.ts";
import { picture, shownWord } from "../../src/front/picture.ts";
import { NAMES, Run } from "../../src/front/run.ts";
import { stepOf, told } from "../../src/front/scenes.ts";
import { seconds } from "../../src/front/sentences.ts";
import { plain } from "../../src/model/words.ts";

const FILE = new URL("../../../../tests/fixtures/front_page.jsonl.gz", import.meta.url);
const bytes = new Uint8Array(gunzipSync(readFileSync(FILE)));
const run = Run.of(bytes);
const events = new TextDecoder()
  .decode(bytes)
  .trim()
  .split("\n")
  .map((line) => JSON.parse(line));
const { you } = run;
const words = (shapes, name) =>
  shapes.filter(({ at }) => at.class?.split(" ").includes(name)).map(({ text }) => text);

test("a cell is what the log schedules and samples", () => {
  let step = 0;
  for (const event of events) {
    if (event.type === "step_started") step = event.step;
    if (event.type === "step_scheduled")
      for (const [id, , count] of event.rows) {
        const cell = run.cell(run.model.request(id), step);
        assert.equal(Math.max(1, cell?.reads ?? 0), count);
      }
    if (event.type === "step_finished")
      for (const [id] of event.tokens)
        assert.notEqual(run.cell(run.model.request(id), event.step)?.word, null);
  }
  assert.deepEqual(
    run.model.requests.map(({ label }) => label),
    NAMES,
  );
});

test("the facts are those of the log", () => {
  const admitted = events.find(({ type, request }) => type === "admitted" && request === you.id);
  assert.deepEqual(sharers(run, run.lastStep)?.blocks, admitted.blocks);
  const preempted = events.find(({ type }) => type === "preempted");
  const away = sentAway(run);
  assert.equal(away?.request.id, preempted.request);
  assert.equal(away?.by?.id, preempted.needed_by);
  const wait = waitOf(run, you, run.lastStep);
  assert.equal(wait?.to, you.admitted.step - 1);
  assert.equal(wait?.reader?.label, "Cleo");
  assert.equal(longReading(run, run.lastStep)?.tokens, 69);
  assert.ok(holdStep(run) < Number(away?.step));
});

test("each scene speaks of its own step, and never of a later one before the run is over", () => {
  const part = new Run();
  let cut = 0;
  const lines = new TextDecoder().decode(bytes).split("\n");
  for (const line of lines) {
    part.read(new TextEncoder().encode(`${line}\n`));
    if (!line.includes('"step_finished"')) continue;
    cut++;
    const said = plain(told(part, 1, cut, 0).what);
    const first = you.tokenSteps[0];
    if (cut < you.arrived) assert.match(said, /one word per step from the same engine/);
    else if (cut < first) assert.match(said, /^You are waiting because Cleo had asked a long/);
    else if (cut < Number(sentAway(run)?.step))
      assert.match(said, /^You waited [\d.]+ \w+ because/);
  }
  assert.equal(cut, run.lastStep);
});

test("the picture shows the words and the blocks of its step, and nothing later", () => {
  for (const [width, height] of [
    [1240, 400],
    [362, null],
  ])
    for (let now = 1; now <= run.lastStep; now++) {
      const layout = layoutOf(width, 23, height);
      const { shapes } = picture({ run, now, scene: 1 }, layout);
      const newest = run.model.requests
        .map((one) => run.cell(one, now)?.word)
        .filter((word) => word != null)
        .map(shownWord);
      const shown = words(shapes, "word").filter((word) => word !== "…");
      for (const word of newest.filter((one) => one.length < 6))
        assert.ok(shown.includes(word), word);
      const most = layout.columns * NAMES.length;
      assert.ok(shown.length <= most);
      const used = run.model.frame(now).blocks.filter(({ kind }) => kind !== "free").length;
      const free = words(shapes, "free").length;
      const partial = run.model
        .frame(now)
        .blocks.filter(({ kind, filled, slots }) => kind === "unshared" && filled < slots).length;
      assert.equal(free, 23 - used + partial);
      for (const { at } of shapes)
        assert.ok(Object.values(at).every((value) => !`${value}`.includes("NaN")));
    }
});

test("a scene lights one thing; the rest keeps its place", () => {
  const layout = layoutOf(1240, 23, 400);
  const now = stepOf(run, 3);
  const [plainly, lit] = [1, 3].map(
    (scene) => picture({ run, now, scene, first: 1 }, layout).shapes,
  );
  const place = ({ tag, at }) => `${tag} ${at.x} ${at.y} ${at.d} ${at.width}`;
  const stays = new Set(plainly.map(place));
  for (const shape of lit) assert.ok(stays.has(place(shape)));
  const bright = lit.filter(({ at }) => /\bhue\b/.test(at.class) && !/\bdim\b/.test(at.class));
  const isYours = ({ at }) => at.class.includes("p3") || Number(at.y) > layout.memory;
  assert.ok(bright.length && bright.every(isYours));
});

test("the parts of the time add up, and each has its scene", () => {
  const parts = partsOf(run, 2_000_000);
  const { total } = run.model.waterfall.of(you.id);
  assert.equal(totalMs(parts), Math.round(2000 + total / 1000));
  assert.deepEqual(
    parts.map(({ kind }) => kind),
    ["start", "wait", "read", "write", "away", "reread", "write"],
  );
  assert.deepEqual(rounded([0.4, 0.4, 0.4]), [1, 0, 0]);
});

test("a choice is compared with the run it changes", () => {
  assert.equal(plain(consequence(run, run)).includes("nothing changes"), true);
  assert.equal(
    overview({ run, now: 9, scene: 4 }, run, layoutOf(1240, 23)).shapes.some(({ at }) =>
      /ghost/.test(at.class),
    ),
    false,
  );
  for (const scene of [1, 2, 3, 4]) {
    const choices = choicesOf(run, scene);
    assert.ok(choices.length === 2 || choices.length === 3);
    for (const { settings } of choices) assert.ok(Object.keys(settings).length);
  }
});

test("durations in words", () => {
  assert.equal(seconds(46_400), "46 milliseconds");
  assert.equal(seconds(140_000), "0.14 seconds");
  assert.equal(seconds(11_040_000), "11.0 seconds");
});
