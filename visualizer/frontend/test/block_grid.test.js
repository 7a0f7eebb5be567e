import assert from "node:assert/strict";
import { test } from "node:test";

import { blockGrid, usedGrid } from "../src/drawing/block_grid.ts";

test("forty blocks on a laptop are 50 x 40, eight in a row", () => {
  const grid = blockGrid(40, 449);
  assert.equal(grid.columns, 8);
  assert.equal(grid.cellHeight, 40);
  assert.ok(Math.abs(grid.cellWidth - 49) < 1.5, `${grid.cellWidth}`);
  assert.equal(grid.rows, 5);
});

test("beside a timeline on a tablet each block still has its number", () => {
  const grid = blockGrid(40, 258);
  assert.equal(grid.columns, 8);
  assert.ok(grid.label > 0);
});

test("every block is inside, overlaps no other, and is found at its centre", () => {
  for (const width of [300, 332, 449, 700, 1100]) {
    for (const count of [1, 7, 40, 100, 128, 500, 1024, 4096]) {
      const grid = blockGrid(count, width);
      const seen = new Set();
      for (let block = 0; block < count; block += 1) {
        const [x, y] = [grid.x(block), grid.y(block)];
        assert.ok(x >= 0 && x + grid.cellWidth <= width + 0.01, `${count} in ${width}`);
        assert.ok(y + grid.cellHeight <= grid.height + 0.01);
        assert.equal(grid.at(x + grid.cellWidth / 2, y + grid.cellHeight / 2), block);
        seen.add(`${x},${y}`);
      }
      assert.equal(seen.size, count);
      assert.ok(grid.cellWidth >= 2, `${count} in ${width}: ${grid.cellWidth}`);
    }
  }
});

test("outside the grid there is no block", () => {
  const grid = blockGrid(13, 449);
  for (const [x, y] of [
    [-3, 5],
    [5, -3],
    [460, 5],
    [5, 900],
    [440, grid.height - 4],
  ]) {
    assert.equal(grid.at(x, y), -1);
  }
});

test("blocks that no request has ever used have no cells", () => {
  const model = { settings: { num_blocks: 128 }, measures: { reach: [2, 9] } };
  const grid = usedGrid(model, 480);
  assert.ok(grid.count >= 9 && grid.count < 32 && grid.count % grid.columns === 0);
  assert.ok(grid.rest > 0 && grid.height < blockGrid(128, 480).height);
  const full = usedGrid({ ...model, measures: { reach: [128] } }, 480);
  assert.deepEqual([full.count, full.rest], [128, 0]);
});
