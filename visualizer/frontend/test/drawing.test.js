import assert from "node:assert/strict";
import { test } from "node:test";
import { blockGrid } from "../src/drawing/block_grid.ts";
import { drawHighlighted } from "../src/drawing/block_sharers.ts";
import { claimOf, drawBlocks } from "../src/drawing/blocks.ts";
import { cursorBand } from "../src/drawing/cursor.ts";
import { packLanes } from "../src/drawing/lane_packing.ts";
import { drawMoments } from "../src/drawing/moment_marks.ts";
import { THEMES } from "../src/drawing/palette.ts";
import { drawStrip } from "../src/drawing/strip.ts";
import { stepAxis, timeScale, wholeView } from "../src/drawing/time_axis.ts";
import { drawAxis, drawTimeline } from "../src/drawing/timeline.ts";
import { HAPPENED } from "../src/model/happenings.ts";
import { recordingPencil, storytellers } from "./recorder.js";

const model = storytellers();
const { hues, ink, ground, band } = THEMES.light;
const [LEFT, RIGHT] = [106, 726];
const PITCH = 22;

const axis = stepAxis({ first: model.firstStep, last: model.lastStep });
const scale = timeScale(wholeView(axis), LEFT, RIGHT, axis);
function timelineAt(step, selected = null) {
  const { painter, marks } = recordingPencil();
  drawTimeline(painter, {
    model,
    frame: model.frame(step),
    scale,
    step,
    selected,
    narrow: false,
    width: 760,
    packing: packLanes(model),
    forks: model.requests.filter(({ forked }) => forked),
    laneHeight: PITCH,
    scroll: 0,
    viewHeight: 12 * PITCH,
    columns: { stateAt: 38, end: 104 },
  });
  return marks;
}

const inLane = (index) => (mark) => mark.y >= index * PITCH - 1 && mark.y < (index + 1) * PITCH;
const hueOf = (id) => hues[model.laneOf(id) % hues.length];
const texts = (marks) => marks.filter(({ kind }) => kind === "text").map(({ text }) => text);

test("decodes are dashes of 6 px on the baseline, one per step, in the request's hue", () => {
  const dashes = timelineAt(53)
    .filter(inLane(0))
    .filter(({ kind, paint, height }) => kind === "fill" && paint === hues[0] && height === 6);
  const inFirst = model.requests.filter(({ lane }) => lane === 0);
  const decodes = inFirst.flatMap(({ segments }) =>
    segments.filter(({ kind }) => kind === "decode"),
  );
  assert.equal(
    dashes.length,
    decodes.reduce((sum, { from, to }) => sum + to - from + 1, 0),
  );
  assert.ok(dashes.every(({ y, width }) => y + 6 === PITCH - 4 && width < scale.width));
});

test("a prefill is a 14 px bar; tokens found in the cache are its hatched top", () => {
  const marks = timelineAt(53);
  const first = marks.find(
    ({ kind, height, paint }) => kind === "fill" && paint === hues[0] && height === 14,
  );
  assert.ok(Math.abs(first.x - LEFT) < 1);
  const third = marks.filter(inLane(2));
  const hatched = third.find(({ kind, paint }) => kind === "fill" && paint?.tile);
  const solid = third.find(
    ({ kind, paint, x, height }) =>
      kind === "fill" && paint === hues[2] && x === hatched.x && height > 5,
  );
  assert.ok(Math.abs(hatched.height + solid.height - 14) < 1e-9);
  // 15 computed, 16 found.
  assert.ok(Math.abs(solid.height / 14 - 15 / 31) < 0.01);
});

test("chunks are counted together, and the first bars explain the numbers", () => {
  const said = texts(timelineAt(53));
  assert.ok(said.includes("31 tokens of prefill, then one token per step"));
  assert.ok(said.some((text) => /^\d+ \+ \d+ cached$/.test(text)));
  assert.ok(said.includes("59+14"));
  assert.ok(!said.some((text) => text.startsWith("+")));
});

test("each request has its name at its bar, each lane the state of its request", () => {
  const said = texts(timelineAt(30, 8));
  for (const { name } of model.requests) assert.ok(said.includes(name), name);
  assert.ok(said.includes("preempted"));
  assert.ok(!said.some((text) => text.startsWith("batch full")), "the waiting band says it");
  assert.ok(said.includes("empty seat"));
});

test("the reason of an end is left out if the next request of the lane is near", () => {
  const said = texts(timelineAt(53)).filter((text) => ["stop", "length"].includes(text));
  const { lanes } = packLanes(model);
  const far = lanes.flatMap((lane) =>
    lane.filter(({ to }, i) => !lane[i + 1] || scale.x(lane[i + 1].from) - scale.end(to) >= 51),
  );
  assert.ok(far.length < model.requests.length);
  assert.equal(said.length, 2 * far.length); // as it is before the cursor, and as it is after
});

test("a preemption is an ink bar, dashes to the resume, and an arrow to the taker's lane", () => {
  const marks = timelineAt(30, 8);
  const {
    from: step,
    resume,
    by,
  } = model.request(8).segments.find(({ kind }) => kind === "preempted");
  const dashed = marks.find(
    ({ kind, dash, paint }) => kind === "line" && dash.length && paint === hueOf(8),
  );
  assert.ok(Math.abs(dashed.points[0][0] - scale.x(step)) < 4);
  assert.ok(Math.abs(dashed.points[1][0] - scale.x(resume)) < 8);
  const x = scale.x(step) + scale.width / 2;
  const arrow = marks.find(
    ({ kind, points, paint }) =>
      kind === "line" && paint === ink && points.every(([px]) => px === x),
  );
  const lane = model.laneOf(by);
  const isUp = lane < model.laneOf(8);
  assert.equal(arrow.points[0][1] > arrow.points[1][1], isUp, "it points to the taker's lane");
  const at = isUp ? (lane + 1) * PITCH : lane * PITCH;
  assert.ok(Math.abs(arrow.points[1][1] - at) < 6);
  const tips = (at) =>
    timelineAt(at, 8).filter(({ kind, paint }) => kind === "shape" && paint === ink);
  assert.deepEqual(
    [tips(29), tips(30), tips(31)].map(({ length }) => length),
    [0, 1, 0],
  );
});

test("everything after the cursor has 42% opacity, in the colour of its lane", () => {
  const marks = timelineAt(30, 8);
  const veils = marks.filter(({ kind, alpha }) => kind === "fill" && Math.abs(alpha - 0.58) < 1e-9);
  const rows = packLanes(model).lanes.length;
  assert.equal(veils.length, rows);
  assert.ok(veils.every(({ x }) => Math.abs(x - scale.x(31)) < 1e-9));
  assert.deepEqual(
    veils.map(({ paint }) => paint),
    Array.from({ length: rows }, (_, lane) => (lane === model.laneOf(8) ? band : ground)),
  );
});

test("at the first step the cursor's flag does not cover the playback buttons", () => {
  const { painter, marks } = recordingPencil();
  const scene = {
    model,
    frame: model.frame(1),
    scale,
    step: 1,
    narrow: true,
    width: 760,
    window: null,
  };
  drawStrip(painter, scene);
  const flag = marks.find(
    ({ kind, paint, height }) => kind === "fill" && paint === ink && height === 15,
  );
  assert.ok(flag.x >= 112, `${flag.x}`); // as wide as `.bar` in board.css
});

test("the seats of a step are grey while taken and outlined while empty", () => {
  const { painter, marks } = recordingPencil();
  const step = 53;
  drawStrip(painter, { model, frame: model.frame(step), scale, step, width: 760, window: null });
  const { used, rule } = THEMES.light;
  const [taken] = marks.filter(({ kind, paint, x }) => kind === "fill" && paint === used && x > 0);
  const empty = marks.find(
    ({ kind, paint, x }) => kind === "frame" && paint === rule && Math.abs(x - taken.x) < 2,
  );
  const { max_batch_size: all } = model.settings;
  const share = model.measures.seats.at(0) / all;
  assert.ok(Math.abs(taken.height / (taken.height + empty.height + 1) - share) < 1e-9);
});

test("the axis has the first step's number once", () => {
  const said = (last) => {
    const { painter, marks } = recordingPencil();
    const axis = stepAxis({ first: 1, last });
    const wide = timeScale(wholeView(axis), LEFT, RIGHT, axis);
    drawAxis(painter, { scale: wide, model });
    return texts(marks);
  };
  assert.deepEqual(said(3), ["step", "1", "2", "3"]);
  assert.deepEqual(said(53).slice(0, 2), ["step 1", "5"]);
});

test("the strip shows the step's figures and stacks prefills over decodes", () => {
  const { painter, marks } = recordingPencil();
  drawStrip(painter, {
    model,
    frame: model.frame(30),
    scale,
    step: 30,
    narrow: false,
    width: 760,
    window: null,
  });
  const said = texts(marks);
  for (const words of [
    "step 30",
    "37 used, 3 cached",
    "5 of 64",
    "5 of 7 in the step",
    "of 40",
    "of 64",
    "full: 64",
  ]) {
    assert.ok(said.includes(words), words);
  }
  const prefills = marks.filter(
    ({ kind, paint, x }) => kind === "fill" && hues.includes(paint) && x < scale.x(2),
  );
  assert.equal(prefills.length, 2, "two requests prefill in step 1");
  const total = prefills.reduce((sum, { height }) => sum + height + 0.7, 0);
  assert.ok(Math.abs(total - (62 / 64) * 34) < 1e-9);
});

function blocksAt(step, selected) {
  const { painter, marks } = recordingPencil();
  const frame = model.frame(step);
  const grid = blockGrid(40, 449);
  drawBlocks(painter, { model, frame, grid, selected, claim: claimOf(frame, model, selected) });
  return { marks, frame, grid };
}

test("a lost block table is ringed with dashes, what the cache keeps is hatched in the hue", () => {
  const { marks, frame } = blocksAt(30, 8);
  const rings = marks.filter(
    ({ kind, paint, width }) => kind === "frame" && paint === hueOf(8) && width > 50,
  );
  assert.deepEqual(rings.length, frame.table(8).blocks.length);
  const kept = frame.blocks.filter(({ kind }) => kind === "cached").length;
  const hatched = marks.filter(({ kind, paint }) => kind === "fill" && paint?.tile);
  assert.equal(hatched.length, kept);
});

test("blocks have 60% opacity, except those of the selected request and those that changed owners", () => {
  const { marks, frame, grid } = blocksAt(30, 6);
  const own = new Set(frame.table(6).blocks);
  for (const block of frame.blocks) {
    const x = grid.x(block.id);
    const y = grid.y(block.id) + grid.label;
    const body = marks.find(
      (mark) => mark.kind === "fill" && Math.abs(mark.x - x) < 1 && Math.abs(mark.y - y) < 1,
    );
    if (!body) continue;
    const stands = own.has(block.id) || block.mark === "handed" || block.mark === "evicted";
    assert.equal(body.alpha, stands ? 1 : 0.6, `block ${block.id}`);
  }
});

test("a shared block shows its owners and their number", () => {
  const { marks, frame } = blocksAt(30, 8);
  const shared = frame.blocks.filter(({ kind }) => kind === "shared");
  const counts = texts(marks).filter((text) => text.startsWith("×"));
  assert.deepEqual(
    counts,
    shared.map(({ owners }) => `×${owners.length}`),
  );
});

test("a highlighted shared block has a curve to each owner's own blocks", () => {
  const { painter, marks } = recordingPencil();
  const frame = model.frame(30);
  const grid = blockGrid(40, 449);
  drawHighlighted(painter, { model, frame, grid, block: 0 });
  const { owners } = frame.blocks[0];
  const curves = marks.filter(({ kind, paint }) => kind === "line" && hues.includes(paint));
  assert.deepEqual(curves.map(({ paint }) => paint).sort(), owners.map(hueOf).sort());
  const centre = (id) => [grid.x(id) + grid.cellWidth / 2, grid.y(id) + grid.label + grid.body / 2];
  const heads = marks.filter(({ kind, points }) => kind === "shape" && points.length === 3);
  const own = (id) => frame.table(id).blocks.find((b) => frame.blocks[b].owners.length === 1);
  const [first, ...sharers] = owners; // the first owner's curve leads into the block
  assert.deepEqual(
    heads.map(({ points }) => points[0]),
    [centre(0), ...sharers.map((id) => centre(own(id)))],
  );
  assert.ok(own(first) !== 0);
});

test("a highlighted block of one owner has a ring and no curve", () => {
  const { painter, marks } = recordingPencil();
  drawHighlighted(painter, { model, frame: model.frame(30), grid: blockGrid(40, 449), block: 10 });
  assert.deepEqual([...new Set(marks.map(({ kind }) => kind))], ["frame"]);
});

test("a cursor out of view draws no band", () => {
  const long = stepAxis({ first: 1, last: 400 });
  const view = timeScale({ from: 100, to: 160 }, LEFT, RIGHT, long);
  for (const [step, bands] of [
    [20, 0],
    [99, 0],
    [130, 1],
    [160, 0],
    [390, 0],
  ]) {
    const { painter, marks } = recordingPencil();
    cursorBand(painter, { scale: view, step }, 0, 50);
    assert.equal(marks.length, bands, `step ${step}`);
    assert.ok(marks.every(({ x, width }) => x >= LEFT - 1 && x + width <= RIGHT + 1));
  }
});

test("a block that is not full has a textured mark in its corner, in maps of every size with slots", () => {
  for (const [blocks, lane] of [
    [40, 3],
    [40, 13],
    [40, 23],
    [128, 13],
    [300, 23],
  ]) {
    const { painter, marks } = recordingPencil();
    const corners = [];
    painter.mark = (...box) => corners.push(box);
    const grid = blockGrid(blocks, 449);
    const block = { id: 1, kind: "unshared", owners: [1], filled: 5, slots: 16, mark: null };
    const used = { measures: { reach: [1] }, firstStep: 1, settings: { num_blocks: 1 } };
    const crowd = { laneOf: () => lane, request: () => model.request(1), ...used };
    const frame = { blocks: [block], copies: [], step: 1 };
    const claim = { held: new Set(), lost: new Set(), wanted: new Set() };
    drawBlocks(painter, { model: crowd, frame, grid, claim, selected: null });
    assert.ok(marks.some(({ kind, paint }) => kind === "fill" && paint === hues[lane % 10]));
    assert.equal(corners.length, lane < 10 ? 0 : 1, `${blocks} blocks, lane ${lane}`);
    for (const [x, y, width, height, drawn] of corners) {
      assert.equal(drawn, lane);
      assert.ok(width >= 6 && width === height);
      const [right, bottom] = [grid.x(1) + grid.cellWidth, grid.y(1) + grid.label + grid.body];
      assert.ok(x + width <= right && right - x < 14 && y + height <= bottom && bottom - y < 14);
    }
  }
});

test("moments that are close are one mark with their number, and no mark is in another's way", () => {
  const happened = new Int32Array(4000);
  for (let step = 0; step < 4000; step += 2) happened[step] = HAPPENED.evicted;
  happened[11] = happened[13] = HAPPENED.preempted;
  const { painter, marks } = recordingPencil(600, 40);
  const columns = Array.from({ length: 500 }, (_, i) => ({
    x: i,
    width: 1,
    from: 8 * i,
    to: 8 * i + 7,
  }));
  drawMoments(painter, { model: { measures: { happened } } }, columns, 0);
  const counts = marks.filter(({ kind }) => kind === "text");
  assert.equal(counts[0].text, "2", "the preemptions are the most telling, and counted alone");
  const evictions = counts.slice(1).map(({ text }) => Number(text));
  assert.ok(evictions.every((count) => count <= 34 * 4) && evictions.length >= 14);
  for (const [i, { x }] of counts.slice(1).entries()) assert.ok(x - counts[i].x >= 34);
});
