import assert from "node:assert/strict";
import { test } from "node:test";

import { GROUPINGS, groupsOf, sizeOf } from "../src/model/groups.ts";
import { storytellers } from "./recorder.js";

/** A frame whose live requests have these labels and prompts; all but the first wait. */
function frameOf(requests) {
  const spans = requests.map(([label, prompt], index) => ({
    id: index + 1,
    label,
    promptLength: prompt.length,
    tokens: [...prompt].map((letter) => letter.charCodeAt(0)),
    texts: [...prompt],
  }));
  return {
    model: { request: (id) => spans[id - 1] },
    running: [1],
    waiting: spans.slice(1).map(({ id }) => id),
    state: { blockSize: 4 },
    phase: (id) => ({ words: id === 1 ? "decode" : "waits" }),
  };
}

const sizes = (frame, by) => groupsOf(frame, by).map((group) => [group.name, sizeOf(group)]);

test("by label, without the numbers of labels that are almost all different", () => {
  const same = frameOf(["chat", "agent", "chat"].map((label) => [label, "a"]));
  assert.deepEqual(sizes(same, "label"), [
    ["chat", 2],
    ["agent", 1],
  ]);
  const numbered = frameOf(["chat-1", "chat-2", "agent-1", ""].map((label) => [label, "a"]));
  assert.deepEqual(sizes(numbered, "label"), [
    ["chat", 2],
    ["agent", 1],
    ["without a label", 1],
  ]);
});

test("by the first block of the prompt; a prompt that is alone or shorter has no group", () => {
  const frame = frameOf(["once upon", "once more", "oncf", "onc"].map((prompt) => ["x", prompt]));
  const [first, alone] = groupsOf(frame, "prefix");
  assert.deepEqual([first.name, first.running, first.waiting], ["once", [1], [2]]);
  assert.deepEqual(alone.waiting, [3, 4]);
});

test("each live request of a step is in one group, whatever the groups are", () => {
  const model = storytellers();
  for (const step of [5, 20, 30, 34])
    for (const by of GROUPINGS) {
      const frame = model.frame(step);
      const ids = groupsOf(frame, by).flatMap(({ running, waiting }) => [...running, ...waiting]);
      assert.deepEqual(
        ids.toSorted(),
        [...frame.running, ...frame.waiting].toSorted(),
        `${by} ${step}`,
      );
    }
});
