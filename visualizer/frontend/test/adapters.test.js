import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";

import { describeBlock } from "../src/board/descriptions.ts";
import { blockGrid } from "../src/drawing/block_grid.ts";
import { claimOf, drawBlocks } from "../src/drawing/blocks.ts";
import { placeWords } from "../src/drawing/lane_words.ts";
import { drawTree, treeColumns } from "../src/drawing/tree.ts";
import { layoutTree } from "../src/drawing/tree_layout.ts";
import { adapterOf, adapterOfBlock, slotWords } from "../src/model/adapters.ts";
import { Model } from "../src/model/index.ts";
import { stuck, stuckWords } from "../src/model/stuck.ts";
import { plain } from "../src/model/words.ts";
import { adapterRows } from "../src/panels/adapter_rows.ts";
import { parseLog } from "./model/read.js";
import { recordingPencil, storytellers } from "./recorder.js";

const file = new URL("../../scenarios/adapters.jsonl.gz", import.meta.url);
const model = new Model(parseLog(gunzipSync(readFileSync(file)).toString()).events);
const idOf = (name) => model.requests.find((one) => one.name === name).id;
const [dev, eva, gus] = ["Dev", "Eva", "Gus"].map(idOf);

test("a waiting request would hit KV of its own adapter only, also when that has lost its slot", () => {
  assert.deepEqual(model.frame(6).path(dev).blocks, []);
  const { state } = model.frame(8);
  assert.ok(!state.adapters.includes("chat"));
  const hit = model.frame(17).story.admissions.find(({ request }) => request === gus).blocks;
  assert.deepEqual(model.frame(8).path(gus).blocks, hit);
});

test("each block in use or cached has the adapter of the requests that can use it", () => {
  for (let step = 1; step <= model.lastStep; step++) {
    const frame = model.frame(step);
    for (const { id, owners } of frame.blocks)
      for (const owner of owners)
        assert.equal(adapterOfBlock(frame, id), adapterOf(model.requestSpan(owner)));
  }
  const frame = model.frame(8);
  const cached = frame.path(gus).blocks;
  assert.deepEqual(new Set(cached.map((id) => adapterOfBlock(frame, id))), new Set(["chat"]));
  assert.ok(describeBlock(model, frame, cached[0]).some((line) => /adapter chat/.test(line)));
});

test("an admission says which adapter it loads and which one leaves, others say nothing", () => {
  assert.match(slotWords(model.frame(7), dev), /sql.*slot 1.*chat/);
  assert.equal(slotWords(model.frame(5), eva), "");
  const words = stuckWords(model.frame(8), stuck(model, 8));
  assert.match(plain(words), /Gus.*adapter chat/);
});

test("a lane's label names the adapter where it has room, and the count comes first", () => {
  const painter = { measure: (text) => text.length };
  const word = { name: "Ada", whose: "legal", text: "30", x: 0, y: 0 };
  const written = (room) => placeWords(painter, [{ ...word, room }])[0].written;
  assert.deepEqual([40, 10, 7].map(written), ["legal, 30", "30", ""]);
});

test("the row below the map has each slot's adapter, the requests that use it, and its change", () => {
  const heights = new Set();
  for (let step = 1; step <= model.lastStep; step++) {
    const frame = model.frame(step);
    const [row] = adapterRows(frame, 480);
    heights.add(row.height);
    frame.state.adapters.forEach((adapter, slot) => {
      const [words] = row.describe(slot * 243 + 5, 5);
      assert.ok(words.startsWith(`slot ${slot}: ${adapter || "empty"}`));
      const named = model.requests.filter(({ name }) => words.includes(name));
      const users = frame.running.map((id) => model.requestSpan(id));
      assert.deepEqual(
        named,
        users.filter((span) => adapter && adapterOf(span) === adapter),
      );
    });
  }
  assert.equal(heights.size, 1);
  const wordsAt = (step) => adapterRows(model.frame(step), 480)[0].words.filter(Boolean).join();
  assert.match(wordsAt(7), /^2 of 2 slots.*sql came.*chat left.*Gus/);
  assert.doesNotMatch(wordsAt(8), /came|left/);
  assert.match(wordsAt(6), /^1 of 2/); // Bo has just ended, and no request uses chat
  assert.deepEqual(adapterRows(storytellers().frame(5), 480), []);
});

test("a slot is drawn with its users' names, as far as they have room", () => {
  const texts = (width) => {
    const { painter, marks } = recordingPencil();
    for (const row of adapterRows(model.frame(8), width)) row.draw(painter, 0, width);
    return marks.flatMap(({ text }) => text ?? []);
  };
  assert.deepEqual(texts(480), ["legal", "Ada and Eva", "sql", "Dev"]);
  assert.deepEqual(texts(90), ["legal", "Ada and…", "sql", "Dev"]);
});

test("the map and the tree name the adapter of KV, and nothing where it is the model's own", () => {
  const frame = model.frame(7);
  const { painter, marks } = recordingPencil();
  const grid = blockGrid(model.settings.num_blocks, 449);
  const claim = claimOf(frame, model, null);
  drawBlocks(painter, { model, frame, grid, claim, selected: null, untouched: true });
  const named = frame.blocks.flatMap(({ id }) => adapterOfBlock(frame, id) || []);
  const names = ["legal", "chat", "sql"];
  const onMap = marks.flatMap(({ text }) => (names.includes(text) ? text : []));
  assert.deepEqual(onMap.sort(), named.sort());
  const tree = recordingPencil();
  const layout = layoutTree(frame.tree, { path: new Set(), endsAt: new Map(), mostRows: 12 });
  const columns = treeColumns(layout, 700, false);
  const scene = { model, frame, layout, columns, path: new Set(), width: 700, rowHeight: 33 };
  drawTree(tree.painter, { ...scene, narrow: false, selected: null, waiting: false });
  const inTree = tree.marks.flatMap(({ text }) => (names.includes(text) ? text : []));
  assert.deepEqual(inTree, names);
});
