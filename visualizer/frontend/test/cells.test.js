import assert from "node:assert/strict";
import { test } from "node:test";

import { blockGrid } from "../src/drawing/block_grid.ts";
import { drawCells } from "../src/drawing/cells.ts";

const LEFT = 6; // px by which the map's drawing is moved to the right

/** Draws `count` blocks as cells on a canvas of pixels; paints are numbers, the first of their tile. */
function drawn(count, width, ratio, paintOf, side = 1, isCell = false) {
  return drawnAfter([], count, width, ratio, paintOf, side, isCell);
}

/** The same after other paints were drawn `before`, with the number of reads of a tile. */
function drawnAfter(before, count, width, ratio, paintOf, side = 1, isCell = false) {
  const grid = blockGrid(count, width, 6);
  const canvas = {
    width: Math.round((width + 2 * LEFT) * ratio),
    height: Math.round((grid.height + 6) * ratio),
  };
  let pixels;
  let read = 0;
  const tiles = new Map();
  const context = {
    getTransform: () => ({ e: LEFT * ratio, f: 0 }),
    createImageData: (w, h) => ({ width: w, height: h, data: new Uint8ClampedArray(4 * w * h) }),
    putImageData: ({ data }) => (pixels = new Uint32Array(data.buffer)),
  };
  const painter = { canvas, context, ratio };
  const tileOf = (paint) => {
    const pixels = Uint32Array.from({ length: side * side }, (_, at) => paint + at);
    const tile = {
      side,
      isCell,
      get pixels() {
        read += 1;
        return pixels;
      },
    };
    if (!tiles.has(paint)) tiles.set(paint, tile);
    return tiles.get(paint);
  };
  const blocks = Array.from({ length: count }, (_, id) => ({ id }));
  for (const paint of [...before, paintOf]) {
    read = 0;
    drawCells(painter, { frame: { blocks }, grid }, (block) => tileOf(paint(block)));
  }
  return { grid, pixels, read, ...canvas };
}

test("a pixel shows the block at its place on the map, or none; each block has pixels", () => {
  for (const ratio of [1, 1.5, 2])
    for (const [count, size] of [
      [4096, 449],
      [3000, 700],
      [4096, 300],
      [20000, 1100],
    ]) {
      const { grid, pixels, width, height } = drawn(count, size, ratio, ({ id }) => id + 1);
      const seen = new Map();
      for (let y = 0; y < height; y += 1)
        for (let x = 0; x < width; x += 1) {
          const block = pixels[y * width + x] - 1;
          if (block < 0) continue;
          seen.set(block, (seen.get(block) ?? 0) + 1);
          // Edges are on whole pixels: a cell may begin half a pixel off.
          const around = [-0.5, 0.5, 1.5].flatMap((dx) =>
            [-0.5, 0.5, 1.5].map((dy) => grid.at((x + dx) / ratio - LEFT, (y + dy) / ratio)),
          );
          assert.ok(
            around.includes(block),
            `${count} in ${size} at ${ratio}: ${block} at ${x}, ${y}`,
          );
        }
      assert.equal(seen.size, count);
      const sizes = [...seen.values()];
      const pitch = Math.round(grid.cellWidth * ratio) + 1;
      assert.ok(Math.max(...sizes) <= pitch * (Math.round(grid.body * ratio) + 1));
      assert.ok(Math.min(...sizes) >= (grid.cellWidth * ratio - 1.6) * (grid.body * ratio - 1.6));
    }
});

test("gaps of the grid show the background", () => {
  const { grid, pixels, width } = drawn(2048, 449, 2, () => 7);
  assert.ok(grid.gapX >= 1);
  const y = Math.round(2 * (grid.y(0) + grid.body / 2));
  const line = Array.from(pixels.subarray(y * width, (y + 1) * width));
  const gaps = line.join("").split(/0+/).filter(Boolean);
  assert.equal(gaps.length, grid.columns);
});

test("a second picture writes only the changes and equals a new one", () => {
  const before = ({ id }) => (id % 3 ? 5 : 9);
  const after = ({ id }) => (id % 3 && id !== 100 ? 5 : 9);
  const anew = drawn(4096, 449, 1.5, after, 7);
  const again = drawnAfter([before], 4096, 449, 1.5, after, 7);
  assert.deepEqual(again.pixels, anew.pixels);
  assert.ok(again.read > 0 && again.read < anew.read / 1000);
  assert.equal(drawnAfter([after], 4096, 449, 1.5, after, 7).read, 0);
});

test("a pattern continues from cell to cell, as on a canvas", () => {
  const side = 7;
  const { pixels, width, height } = drawn(4096, 449, 1, () => 1, side);
  for (let y = 0; y < height; y += 1)
    for (let x = 0; x < width; x += 1) {
      const pixel = pixels[y * width + x];
      if (pixel) assert.equal(pixel - 1, (y % side) * side + (x % side));
    }
});

test("a mark begins with each cell", () => {
  const side = 40;
  const { grid, pixels, width } = drawn(4096, 449, 2, () => 1, side, true);
  const [left, top] = [2 * (LEFT + grid.x(0)), 2 * grid.y(0)].map(Math.round);
  for (const column of [0, 1, 5]) {
    const x = Math.round(left + 2 * column * (grid.cellWidth + grid.gapX));
    assert.equal(pixels[top * width + x], 1, `column ${column}`);
    assert.equal(pixels[top * width + x + 1], 2);
    assert.equal(pixels[(top + 1) * width + x], 1 + side);
  }
});
