import assert from "node:assert/strict";
import { test } from "node:test";
import { partners, stepFor } from "../src/compare/alignment.ts";
import { change, figure } from "../src/compare/compare_tables.ts";
import { ghostLayout } from "../src/compare/ghost_layout.ts";
import { drawGhost, shadesOf } from "../src/compare/ghost_picture.ts";
import { doubtOf, gapWords, ghostRows, shownRows } from "../src/compare/ghost_rows.ts";
import { headline } from "../src/compare/headline.ts";
import { miniGrid } from "../src/drawing/mini_map.ts";
import { THEMES } from "../src/drawing/palette.ts";
import { timeScale, wholeView } from "../src/drawing/time_axis.ts";
import { wallAxis } from "../src/drawing/wall_axis.ts";
import { recordingPencil, storytellers } from "./recorder.js";

const EXACT = { share: 0, ms: 0 };

/** Facts of a comparison in which all requests are paired by their ids. */
const factsOf = (more = {}) => ({
  names: ["A", "B"],
  settings: [],
  totals: [],
  renumbered: [],
  unmatched: [[], []],
  end_noise: EXACT,
  difference: { step: 5, requests: [1, 1] },
  ...more,
});

/** A run whose requests `{id: step of the end}` end; a step takes `took` us. */
function run(ends, took = 10) {
  const requests = Object.entries(ends).map(([id, step]) => ({
    id: Number(id),
    finished: step == null ? null : { step },
  }));
  const axis = { kind: "time", end: (step) => step * took };
  return { model: { requests, request: (id) => requests.find((one) => one.id === id) }, axis };
}

const rowsOf = ([a, b], facts) => ghostRows([a.model, b.model], [a.axis, b.axis], factsOf(facts));
const statesOf = (rows) => rows.map(({ state }) => state);

test("a gap is the end in B minus the end in A, and only from the fork on", () => {
  const runs = [run({ 1: 9, 2: 4, 3: 8, 4: null }), run({ 1: 7, 2: 4, 3: 8, 4: 9 })];
  const rows = rowsOf(runs);
  assert.deepEqual(statesOf(rows), ["gap", "before", "same", "open"]);
  assert.deepEqual(
    rows.map(({ gap }) => gap),
    [-20, 0, 0, NaN],
  );
});

test("requests of one run alone have a row, and renumbered ones are paired", () => {
  const runs = [run({ 1: 9, 2: 9 }), run({ 1: 9, 7: 6 })];
  const rows = rowsOf(runs, { renumbered: [[1, 7]], unmatched: [[2], [1]] });
  assert.deepEqual(statesOf(rows), ["gap", "only", "only"]);
  assert.deepEqual(
    rows.map(({ a, b }) => [a?.id, b?.id]),
    [
      [1, 7],
      [2, undefined],
      [undefined, 1],
    ],
  );
  assert.deepEqual(
    rows.map((row) => gapWords(row, "time", ["X", "Y"])),
    ["0.03 ms sooner", "only in X", "only in Y"],
  );
});

test("a gap within the noise is not one; steps are exact", () => {
  const ends = [100_000, 104_000];
  assert.equal(doubtOf(ends, { share: 0.05, ms: 0 }, "time"), "noise");
  assert.equal(doubtOf(ends, { share: 0.03, ms: 0 }, "time"), null);
  assert.equal(doubtOf(ends, { share: 0, ms: 5 }, "time"), "noise");
  assert.equal(doubtOf(ends, { share: null, ms: 0 }, "time"), "unknown");
  assert.equal(doubtOf(ends, { share: null, ms: 0 }, "steps"), null);
  const runs = [run({ 1: 100 }), run({ 1: 102 })];
  assert.deepEqual(statesOf(rowsOf(runs, { end_noise: { share: 0.05, ms: 0 } })), ["noise"]);
  const [unknown] = rowsOf(runs, { end_noise: { share: null, ms: 0 } });
  assert.equal(unknown.state, "unknown");
  assert.equal(gapWords(unknown, "time", ["A", "B"]), "? 0.02 ms later");
});

test("twenty rows are in order of arrival; of more, the largest gaps come first", () => {
  const gaps = Array.from({ length: 21 }, (_, i) => ({ gap: i === 3 ? NaN : i - 4 }));
  assert.deepEqual(shownRows(gaps.slice(1)), { shown: gaps.slice(1), left: 0 });
  const { shown, left } = shownRows(gaps);
  assert.equal(left, 1);
  assert.deepEqual(
    shown.slice(0, 3).map(({ gap }) => gap),
    [16, 15, 14],
  );
});

test("the headline has the change, the fork, and how B ends", () => {
  const settings = [["max_kv_tokens", "320", "400"]];
  const totals = [["preemptions", 2, 0]];
  const textOf = (facts, ends, kind = "time") =>
    headline(factsOf({ settings, totals, ...facts }), { firstStep: 1 }, ends, kind)
      .map(({ text, request }) => text ?? `r${request}`)
      .join("");
  const text = textOf({}, [820_000, 763_000]);
  for (const fact of ["max_kv_tokens 320 or 400?", "4 steps", "step 5", "r1", "no preemption"])
    assert.ok(text.includes(fact), fact);
  assert.match(text, /57 ms sooner\.$/);
  assert.match(textOf({}, [50, 52], "steps"), /2 steps later\.$/);
  assert.match(
    textOf({ end_noise: { share: 0.1, ms: 0 } }, [820_000, 763_000]),
    /within the noise\.$/,
  );
  const unknown = textOf({ end_noise: { share: null, ms: 0 } }, [820_000, 763_000]);
  assert.match(unknown, /unknown/);
  assert.doesNotMatch(unknown, /within the noise/);
  const held = { totals: [["paused or idle, ms", 12_800, 0]] };
  assert.match(
    textOf(held, [820_000, 763_000]),
    /57 ms sooner\. .*12\.8 s .*in A and 0 ms in B do not\.$/,
  );
  assert.match(textOf(held, [50, 52], "steps"), /2 steps later\.$/);
  assert.match(textOf({ names: ["x", "y"] }, [1, 1]), /^x or y\? .* y .*same time\.$/);
  const none = headline(factsOf({ difference: null, verdict: "No decision differs." }), {}, [], "");
  assert.deepEqual(none, [{ text: "No decision differs." }]);
});

test("twenty rows fit a laptop's screen below the headline, and a point finds its row and run", () => {
  const layout = ghostLayout({ width: 892, count: 20, narrow: false, names: 40, words: 90 });
  assert.ok(layout.height <= 660);
  assert.ok(layout.right - layout.left > 600);
  const y = layout.top + 3 * layout.pitch;
  assert.deepEqual(layout.at(400, y + 5, 300), { row: 3, side: 0, inPlot: true });
  assert.deepEqual(layout.at(400, y + layout.pitch - 3, 300), { row: 3, side: 1, inPlot: true });
  // Nothing of B is drawn before the fork.
  assert.equal(layout.at(200, y + layout.pitch - 3, 300).side, 0);
  assert.deepEqual(layout.at(305, 10, 300), { fork: true });
  assert.equal(layout.at(400, layout.bottom + 3, 300), null);
  for (let row = 0; row < 20; row += 1)
    assert.ok(layout.below(row) < layout.top + (row + 1) * layout.pitch, "rows do not overlap");
});

test("B is drawn from the fork on, below A's lanes, and the gap is shaded", () => {
  const model = storytellers();
  const axis = wallAxis(model);
  const width = 900;
  const facts = factsOf({ difference: { step: 19, requests: [1, 1] } });
  const rows = ghostRows([model, model], [axis, axis], facts);
  assert.ok(rows.every(({ state }) => state === "same" || state === "before"));
  rows[0] = { ...rows[0], gap: -10_000, ends: [300_000, 290_000], state: "gap" };
  const layout = ghostLayout({ width, count: rows.length, narrow: false, names: 40, words: 90 });
  const scale = timeScale(wholeView(axis), layout.left, layout.right, axis);
  const { painter, marks } = recordingPencil(width, layout.height);
  drawGhost(painter, {
    models: [model, model],
    scales: [scale, scale],
    rows,
    layout,
    names: ["A", "B"],
    fork: 19,
    ends: [axis.to, axis.to],
    breaks: [[{ place: axis.to / 2, length: axis.to }], []],
    selected: -1,
    narrow: false,
  });
  const fork = scale.x(19);
  const outlinesOf = (row) =>
    marks.filter(
      ({ kind, y, height }) => kind === "frame" && Math.abs(y + height - layout.below(row)) < 1,
    );
  assert.ok(outlinesOf(1).length > 0);
  assert.ok(outlinesOf(1).every(({ x }) => x >= fork - 1));
  // A request that ended before the fork has no outline at all.
  assert.equal(rows[2].state, "before");
  assert.deepEqual(outlinesOf(2), []);
  const shades = marks.filter(({ paint }) => paint === shadesOf(THEMES.light).sooner);
  assert.equal(shades.length, 1);
  assert.ok(Math.abs(shades[0].width - 10_000 * scale.per) < 1e-6);
  const words = marks.filter(({ kind }) => kind === "text").map(({ text }) => text);
  assert.ok(words.includes("10 ms sooner"));
  const middle = scale.at(axis.to / 2);
  const isSlanted = ([[x1, y1], [x2, y2]]) =>
    y1 - y2 === 12 && Math.abs((x1 + x2) / 2 - middle) < 3;
  const strokes = marks.filter(({ kind, points }) => kind === "line" && isSlanted(points));
  assert.equal(strokes.length, 2, "where A was paused");
  assert.ok(words.some((text) => text.includes("18 steps")));
});

test("partners, and the step that corresponds", () => {
  const partnerOf = partners({ renumbered: [[2, 3]], unmatched: [[5], [6]] });
  const found = [
    [1, 2, 3],
    [0, 3, 2],
    [1, 5, null],
    [0, 6, null],
    [0, 1, 1],
    [1, null, null],
  ];
  for (const [side, id, other] of found) assert.equal(partnerOf(side, id), other);
  const runOf = (lastStep, took, kind = "time") => [
    { firstStep: 1, lastStep },
    { kind, end: (step) => step * took },
  ];
  const [[a, slow], [b, slower]] = [runOf(10, 10), runOf(20, 20)];
  assert.equal(stepFor(b, [slower, slow], 7, 3), 3); // ends at 70, b's step 3 at 60
  assert.equal(stepFor(a, [slow, slower], 4, 3), 8);
  assert.equal(stepFor(b, [slower, slow], 3, 3), 3, "the fork is the same step in both");
  const bySteps = [runOf(10, 1, "steps")[1], runOf(20, 1, "steps")[1]];
  assert.equal(stepFor(b, bySteps, 7, 3), 7);
  assert.equal(stepFor(a, bySteps, 15, 3), 10, "the shorter run stays at its end");
  assert.equal(stepFor(b, [{ kind: "time", end: () => 99 }, slow], 4, 3), 1, "none had ended");
});

test("small maps of two runs have cells of one size", () => {
  const [one, two] = [miniGrid(40, 170, 64), miniGrid(64, 170, 64)];
  assert.deepEqual([one.cellWidth, one.body], [two.cellWidth, two.body]);
  assert.ok(one.height < two.height);
  assert.ok(two.x(15) + two.cellWidth <= 170);
  assert.ok(miniGrid(1000, 170).height < 120);
});

test("figures have three digits, changes a sign", () => {
  assert.deepEqual([12.345, 0, 1234.5, null, 0.001234].map(figure), [
    "12.3",
    "0",
    "1,235",
    "–",
    "0.001",
  ]);
  assert.deepEqual([2, -0.5, 0, null].map(change), ["+2", "−0.5", "0", "–"]);
});
