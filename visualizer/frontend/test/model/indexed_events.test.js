import assert from "node:assert/strict";
import { test } from "node:test";
import { Absent, IndexedEvents } from "../../src/model/indexed_events.ts";

/** Events in sections of a megabyte and an event each. */
function eventsOf(count) {
  const events = new IndexedEvents();
  const read = async () => ({ state: null, chunks: [new Uint8Array(1 << 20)] });
  for (let i = 0; i < count; i++) events.addSection({ counts: [1], read });
  return events;
}

/** Throws `Absent` unless the event is read; another error, because the bytes are no chunk. */
const isRead = (events, index) => {
  try {
    events.at(index);
  } catch (error) {
    return error instanceof Absent ? error : true;
  }
};

test("of a long log the sections that were needed last stay in memory", async () => {
  const events = eventsOf(100);
  for (let i = 0; i < 100; i++) await events.fetch(i, i);
  const there = Array.from({ length: 100 }, (_, i) => isRead(events, i) === true);
  assert.deepEqual(
    there,
    there.map((_, i) => i >= 68),
  );
  await events.fetchAll();
  assert.ok(there.every((_, i) => isRead(events, i) === true));
});

test("a search keeps all sections that it has asked for, so that it ends", async () => {
  const events = eventsOf(100);
  for (let i = 0; i < 60; i++)
    if (isRead(events, i) !== true) await Absent.fetch(isRead(events, i), () => {});
  for (let i = 0; i < 60; i++) assert.equal(isRead(events, i), true);
});
