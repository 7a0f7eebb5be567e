import assert from "node:assert/strict";
import test from "node:test";
import { CowList } from "../../src/model/cow_list.ts";

test("items are found by index and listed in order, without gaps", () => {
  const pages = new CowList();
  pages.set(200, "b");
  pages.set(3, "a");
  assert.deepEqual(pages.list(), ["a", "b"]);
  assert.equal(pages.get(4), undefined);
  pages.delete(3);
  assert.deepEqual(pages.list(), ["b"]);
});

test("items are removed from the end, across pages, and from the middle", () => {
  const pages = new CowList();
  for (let item = 0; item < 130; item++) pages.push(item);
  for (let item = 129; item >= 60; item--) assert.ok(pages.take(item));
  assert.deepEqual(
    pages.list(),
    Array.from({ length: 60 }, (_, item) => item),
  );
  assert.ok(!pages.take(60));
  assert.ok(pages.take(3));
  assert.deepEqual(pages.list().slice(2, 5), [2, 4, 5]);
  assert.equal(pages.length, 59);
});

test("a copy and its origin never see each other's changes", () => {
  // A small linear congruential generator, so that a failure repeats.
  let seed = 7;
  const random = (below) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % below;
  const pairs = [[new CowList(), new Map()]];
  for (let round = 0; round < 3000; round++) {
    const [pages, plain] = pairs[random(pairs.length)];
    const index = random(300);
    const action = random(10);
    if (action === 0 && pairs.length < 12) pairs.push([pages.copy(), new Map(plain)]);
    else if (action < 3) {
      pages.delete(index);
      plain.delete(index);
    } else {
      pages.set(index, round);
      plain.set(index, round);
    }
  }
  for (const [pages, plain] of pairs) {
    const sorted = [...plain].sort(([a], [b]) => a - b).map(([, item]) => item);
    assert.deepEqual(pages.list(), sorted);
  }
});
