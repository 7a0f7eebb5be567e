import assert from "node:assert/strict";
import test from "node:test";
import { SLO } from "../src/board/view.ts";
import { pythonFor, readAddress, writeAddress } from "../src/host/address.ts";

test("an address has the limits of the goodput if the reader has set others", () => {
  const slo = { ttft: 80_000, itl: 12_500 };
  assert.deepEqual(readAddress(writeAddress({ step: 3, selected: 1, slo })).slo, slo);
  assert.equal(readAddress(writeAddress({ step: 3, selected: 1, slo: SLO })).slo, undefined);
  assert.match(pythonFor({ step: 3, selected: 1, slo }), /, slo=\(80, 12\.5\)\)$/);
  assert.equal(pythonFor({ step: 3, selected: 1, slo: SLO }), "show(log, step=3, select=1)");
});

test("an address written by hand may say select, as the Python call does", () => {
  assert.deepEqual(readAddress("#step=30&select=8"), { step: 30, selected: 8 });
  assert.deepEqual(readAddress("#step=30&selected="), { step: 30, selected: null });
});

test("an address has the level if it is not the usual one", () => {
  const state = { step: 3, selected: 1, level: "lanes" };
  assert.equal(readAddress(writeAddress(state)).level, "lanes");
  assert.match(pythonFor(state), /, level="lanes"\)$/);
  assert.equal(readAddress("#step=3").level, undefined);
});
