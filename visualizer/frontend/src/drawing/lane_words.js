/**
 * Words in the lanes: token counts, reasons for waiting, how a request ended. Labels stand on the thing
 * and not in a legend: the first bar with room to spare says what its number means.
 */

import { plural } from "./html.js";
import { LABELLED } from "./lane_drafts.js";

const SMALL = { size: 10.5 };
const MOST_CHUNKS = 4;
const MOST_REASONS = 2;

const isBar = (segment) => segment?.kind === "prefill" || segment?.kind === "catchup";

/** Does `next` go on with the prompt that `segment` is a chunk of? */
export const isChunk = (next, segment) =>
  isBar(segment) && isBar(next) && next.from === segment.to + 1 && !next.found;

/**
 * "59+14" behind the last of two chunks, with a longer form for where there is room. `words` and `over`: how
 * high above `base`, the latter over drafts; 0: there is no room over them.
 */
export function countWords({ scale, narrow, model }, span, last, base, { words, over }) {
  let first = last;
  while (first > 0 && isChunk(span.segments[first], span.segments[first - 1])) first -= 1;
  const chunks = span.segments.slice(first, last + 1);
  const { found, kind } = chunks[0];
  const end = chunks.at(-1).to;
  const guesses = mostDrafts(span);
  const after = span.segments
    .slice(last + 1)
    .find(({ kind: next, drafts }) => next !== "decode" || (drafts && !over));
  const free = after ? scale.x(after.from) : scale.end(span.finished?.step ?? model.lastStep);
  const counts = chunks.map(({ count }) => count);
  const sum = counts.reduce((all, count) => all + count, 0);
  const many = counts.length > MOST_CHUNKS ? ` in ${counts.length} chunks` : "";
  const number = many ? `${sum}` : counts.join("+");
  const text = number + many;
  const token = narrow ? "one" : "one token";
  const then = guesses ? `${token} and up to ${plural(guesses, "draft")}` : token;
  const labelled = over && guesses && scale.width >= LABELLED; // the steps say it themselves
  const prefill = `${narrow ? "" : "tokens of "}prefill${many}, then ${then} per step`;
  return {
    text,
    long: found
      ? `${text} + ${found} cached`
      : kind === "prefill" && !labelled && `${number} ${prefill}`,
    topic: found ? "found" : guesses ? "drafts" : "prefill",
    x: scale.end(end) + 2,
    y: base - (guesses && over ? over : words),
    room: free - scale.end(end) - 4,
    until: end,
  };
}

/** How many drafts a step of this request checks at most. */
const mostDrafts = (span) =>
  span.segments.reduce((most, { drafts = 0 }) => Math.max(most, drafts), 0);

/**
 * "batch full, then behind r9": why it waited, in order, as far as the words fit above the line.
 * Waits behind another request are left out before its own reasons, short waits before long ones.
 * `onLine`: in a narrow lane there is no room above it.
 */
export function waitLabel(painter, { scale, model }, span, segment, y, onLine) {
  const x = Math.max(scale.x(segment.from), scale.left) + 4;
  const right = Math.min(scale.end(segment.to ?? model.lastStep), scale.right);
  const all = model.waitReasons(span, segment);
  const kept = [...all];
  const text = () => {
    const told = kept
      .map(({ words }) => words)
      .filter((words, i, before) => words !== before[i - 1]);
    return told.join(", then ") + (kept.length < all.length ? " …" : "");
  };
  while (
    kept.length &&
    (kept.length > MOST_REASONS || painter.measure(text(), SMALL) > right - x - 4)
  ) {
    const least = kept.reduce((a, b) => ((a.own - b.own || a.steps - b.steps) < 0 ? a : b));
    kept.splice(kept.indexOf(least), 1);
  }
  return kept.length ? [{ text: text(), x, y, muted: true, onLine }] : [];
}

/**
 * Writes words: paler after `step`, and in the long form where it fits and the topic has not been explained
 * yet. Words marked `behind` are left out where others on their line are in the way.
 */
export function placeWords(painter, words, step) {
  const told = new Set();
  const ends = new Map(); // by height: where the last words end
  for (const word of words) {
    const { text, long, topic, x, y, room = Infinity, muted, until, ground, onLine, behind } = word;
    if (behind && x < ends.get(y) + 4) continue;
    const fits = (candidate) => painter.measure(candidate, SMALL) <= room;
    const explains = long && !told.has(topic) && fits(long);
    if (explains) told.add(topic);
    if (!explains && !fits(text)) continue;
    const { theme } = painter;
    if (onLine) painter.fill(x - 2, y - 8, painter.measure(text, SMALL) + 4, 10, ground);
    const color = muted || until > step ? theme.muted : theme.ink;
    const written = explains ? long : text;
    painter.text(written, x, y, { ...SMALL, color, halo: behind ? undefined : ground });
    ends.set(y, x + painter.measure(written, SMALL));
  }
}
