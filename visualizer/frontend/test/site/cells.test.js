import assert from "node:assert/strict";
import { test } from "node:test";
import { cellsToRun, hasRun, isChanged } from "../../src/site/cells.ts";

const lesson = () =>
  ["a", "b", "c", "d"].map((source) => ({ source, original: source, ran: null }));

/** Runs a cell and what it needs, and returns the sources that ran. */
function run(cells, at) {
  const needed = cellsToRun(cells, cells[at]);
  for (const cell of needed) hasRun(cells, cell);
  return needed.map((cell) => cell.source).join("");
}

test("the first run of a cell runs those before it, and the next one only the cell itself", () => {
  const cells = lesson();
  assert.equal(run(cells, 2), "abc");
  assert.equal(run(cells, 2), "c");
  assert.equal(run(cells, 3), "d");
});

test("a changed cell and all that followed it run again", () => {
  const cells = lesson();
  run(cells, 3);
  cells[1].source = "B";
  assert.equal(run(cells, 3), "Bcd");
  cells[0].source = "A";
  assert.equal(run(cells, 0), "A");
  assert.equal(run(cells, 2), "Bc");
});

test("a lesson is changed until the reader has put everything back", () => {
  const cells = lesson();
  assert.ok(!isChanged(cells));
  cells[2].source = "C";
  assert.ok(isChanged(cells));
  cells[2].source = "c";
  assert.ok(!isChanged(cells));
});
