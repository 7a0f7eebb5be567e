/** Whose is whose: the LoRA adapters of requests and of KV, and the slots for them. */

import type { Frame } from "./frame.ts";
import { messages, text } from "./messages.ts";
import type { Model } from "./model.ts";

/** The adapter of a request, or of the KV in a node at the top of the tree; "" for none. */
export const adapterOf = (one: { extra_key?: string[] } | null | undefined) =>
  one?.extra_key?.[0] ?? "";

/** Whether a request of the log has an adapter. */
export const hasAdapters = ({ settings, requests }: Model) =>
  Number(settings.max_loras) > 0 && requests.some(adapterOf);

/** "adapter sql", or "". */
export const adapterWords = (one: Parameters<typeof adapterOf>[0]) =>
  adapterOf(one) && `adapter ${adapterOf(one)}`;

/** What an admission does to the adapters' slots: "the adapter sql goes into slot 1 in place of chat, ..."; or "". */
export function slotWords({ story }: Frame, id: number) {
  const change = story.slots.find(({ request }) => request === id);
  if (!change) return "";
  const { loaded, replaced } = messages.adapter;
  return text(loaded, { ...change }) + (change.evicted && text(replaced, { ...change }));
}

/** The adapter of the KV in a block, "" for none. */
export function adapterOfBlock({ blocks, state }: Frame, id: number) {
  const { owners, node } = blocks[id];
  if (owners.length) return adapterOf(state.request(owners[0]));
  return node ? adapterOf(state.path(node).at(-1)) : "";
}
