/**
 * Prompts to try, one tap each. A model that chats gets questions that the bundled model answers; one that only
 * completes text gets beginnings of stories.
 */

import { h } from "../../visualizer/frontend/src/drawing/html.ts";

const LONG =
  "Once upon a time there was a small boat called Pip. Pip lived in a harbour between two hills, where the " +
  "fishing boats came home every evening with their nets full. All the big boats had jobs: one carried apples, " +
  "one carried letters, and one pulled the others out when the wind was strong. Pip had no job. Every morning " +
  "it asked the harbour master, and every morning the harbour master said: not today, little boat. One night " +
  "the lamp in the lighthouse went out, and the fog came in from the sea. The big boats could not find the way " +
  "between the rocks. But Pip knew each rock, because it had played there all summer. It rang its bell, and " +
  "one after the other the big boats followed the sound home. ";

/** The model tells a story about each. Memory fills only with different answers: a tree keeps equal ones once. */
const ANIMALS =
  "bear bee bird cat deer dog dragon duck frog goat horse lion mouse pig rabbit sheep tiger turtle wolf".split(
    " ",
  );
const own = ANIMALS[Math.floor(Math.random() * ANIMALS.length)];

/** Prompts, with a name for the button where the prompt is long. */
type Suggestions = [prompt: string, name?: string][];

const CHAT: Suggestions = [
  ["What can you do?"],
  ["What is a KV cache?"],
  ["Why is decode slower than prefill?"],
  // 18 tokens as a chat: more than a block of 16, and three fit into a step of 64.
  ["What does the engine do with a request when the memory is full?"],
  ["What is 17 + 25?"],
  ["Tell me a story about a fox."],
  [`Tell me a story about a ${own}.`],
  [`${LONG}Tell me a story about Pip.`, "A long prompt"],
];
const RAW: Suggestions = [
  ["Once upon a time"],
  ["One day, a little dog"],
  ["The cat sat on"],
  ["There was a girl named"],
  [`${LONG}One day Pip`, "A long prompt"],
];

/** Fills the list; `pick(prompt)` is called for a tap. */
export function showSuggestions(list: HTMLElement, chats: boolean, pick: (prompt: string) => void) {
  const kind = chats ? "chat" : "raw";
  if (list.dataset.kind === kind) return;
  list.dataset.kind = kind;
  list.replaceChildren(
    ...(chats ? CHAT : RAW).map(([prompt, name]) =>
      h("li", h("button", { click: () => pick(prompt) }, name ?? prompt)),
    ),
  );
}
