import assert from "node:assert/strict";
import { test } from "node:test";
import { countWords, drawWords, placeWords } from "../src/drawing/lane_words.ts";
import { assertNames, names } from "./facts.js";
import { recordingPencil } from "./recorder.js";

test("a name comes before what follows it, and alone if only it fits", () => {
  const written = (room) => {
    const { painter, marks } = recordingPencil();
    const words = [{ name: "Cleo", text: "59+14", x: 10, y: 5, room }];
    drawWords(painter, placeWords(painter, words), 1);
    return marks.map(({ text }) => text);
  };
  assert.deepEqual(written(100), ["Cleo", "59+14"]);
  assert.deepEqual(written(30), ["Cleo"]);
  assert.deepEqual(written(10), []);
});

function counted(segments, { narrow = false, over = 12 } = {}) {
  const scale = { x: (step) => 10 * step, end: (step) => 10 * step + 10, width: 10 };
  return countWords({ scale, narrow, model: { lastStep: 90 } }, { segments }, 0, 20, {
    words: 8,
    over,
  });
}
const prefill = { kind: "prefill", from: 1, to: 1, count: 40, found: 0 };
const decode = (from, to, drafts) => ({ kind: "decode", from, to, drafts, accepted: 0 });

test("the label 'one token per step' appears only for requests without drafts", () => {
  const bare = counted([prefill, decode(2, 9, 0)]).long;
  assertNames(bare, 40, 1);
  assert.ok(!names(bare, 4), bare);
  const drafted = [prefill, decode(2, 2, 0), decode(3, 3, 4), decode(4, 4, 1)];
  const { long } = counted(drafted);
  assertNames(long, 40, 1, 4);
  const narrow = counted(drafted, { narrow: true }).long;
  assertNames(narrow, 40, 1, 4);
  assert.ok(narrow.length < long.length);
});

test("a prompt in many chunks has a label too", () => {
  const chunks = [1, 2, 3, 4, 5].map((step) => ({ ...prefill, from: step, to: step }));
  const scale = { x: (step) => 10 * step, end: (step) => 10 * step + 10, width: 10 };
  const words = countWords({ scale, model: { lastStep: 90 } }, { segments: chunks }, 4, 20, {
    words: 8,
    over: 12,
  });
  assertNames(words.text, 200, 5);
  assertNames(words.long, 200, 5, 1);
});

test("drafts are explained even if plain decodes have been explained already", () => {
  const [plain, drafted] = [counted([prefill]), counted([prefill, decode(2, 2, 1)])];
  assert.notEqual(plain.topic, drafted.topic);
});

test("a long name is cut in its middle, so that names that begin alike stay apart", () => {
  const { painter } = recordingPencil();
  const room = painter.measure("123456789");
  assert.equal(painter.cutName("group 17", room), "group 17");
  const [one, other] = ["group of the morning 1", "group of the morning 2"].map((name) =>
    painter.cutName(name, room),
  );
  assert.match(one, /^gro….*1$/);
  assert.notEqual(one, other);
  assert.ok(painter.measure(one) <= room);
  assert.ok(painter.measure(painter.cutName("x".repeat(4000), room)) <= room);
});
