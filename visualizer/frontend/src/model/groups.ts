/**
 * Groups of live requests. There are thirty marks, and a screen has room for as many lanes, so a few hundred requests can
 * only be told apart as groups: by label, by the first block of their prompts, or by state. Pure functions.
 */

import type { Frame } from "./frame.ts";
import { isSecret } from "./knowledge.ts";
import type { RequestSpan } from "./request_spans.ts";

export const GROUPINGS = ["label", "prefix", "state"] as const;
export type Grouping = (typeof GROUPINGS)[number];

export interface Group {
  name: string;
  running: number[]; // ids
  waiting: number[];
}

const UNLABELLED = "without a label";
const ALONE = "no other request begins alike";

/** The live requests of a frame in groups, the largest first. A request is in one group. */
export function groupsOf(frame: Frame, by: Grouping): Group[] {
  const { model, running, waiting } = frame;
  const nameOf = namesBy(frame, by);
  const groups: Map<string, Group> = new Map();
  const put = (id: number, place: "running" | "waiting") => {
    const span = model.request(id);
    if (!span) return;
    const name = nameOf(span);
    const group = groups.get(name) ?? { name, running: [], waiting: [] };
    groups.set(name, group);
    group[place].push(id);
  };
  for (const id of running) put(id, "running");
  for (const id of waiting) put(id, "waiting");
  return [...groups.values()].sort((a, b) => sizeOf(b) - sizeOf(a));
}

export const sizeOf = ({ running, waiting }: Group) => running.length + waiting.length;

function namesBy(frame: Frame, by: Grouping): (span: RequestSpan) => string {
  if (by === "state") return ({ id }) => frame.phase(id).words;
  const live = [...frame.running, ...frame.waiting].flatMap((id) => frame.model.request(id) ?? []);
  if (by === "label") return groupNamer(live);
  const size = frame.state.blockSize;
  const counts: Map<string, number> = new Map();
  for (const span of live) {
    const key = beginningOf(span, size);
    counts.set(key, 1 + (counts.get(key) ?? 0));
  }
  return (span) => {
    const key = beginningOf(span, size);
    const text = span.texts.slice(0, size).join("").trim();
    return counts.get(key) === 1 ? ALONE : text || key;
  };
}

/** Names the group of each of these requests by its label. */
export function groupNamer(requests: RequestSpan[]): (span: RequestSpan) => string {
  const labels = requests.map(({ label }) => label);
  // "chat-1", "chat-2": labels that are almost all different are grouped without their numbers.
  const isNumbered = 2 * new Set(labels).size > labels.length;
  const short = (label: string) => (isNumbered && label.replace(/[\s#_.:-]*\d+$/, "")) || label;
  return ({ label }) => short(label) || UNLABELLED;
}

/** The first block of a prompt: requests that share it can share its KV. A shorter prompt has no full block to share. */
function beginningOf({ tokens, hashes, promptLength, id }: RequestSpan, size: number) {
  if (isSecret(tokens)) return hashes?.[0] ?? `${id}`;
  return promptLength < size ? `${id}` : tokens.slice(0, size).join();
}
