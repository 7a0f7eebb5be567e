/**
 * Words in the lanes: names, token counts, how a request ended. Labels stand on the thing
 * and not in a legend: the first bar with room to spare says what its number means.
 */

import type { RequestSpan, Segment } from "../model/request_spans.ts";
import type { CanvasPainter, Rect } from "./canvas_painter.ts";
import { plural } from "./html.ts";
import type { LaneForms, LaneScene } from "./lane.ts";
import { LABELLED } from "./lane_drafts.ts";

export interface LaneWord {
  name?: string;
  whose?: string; // the adapter of what has the name, if there is room for it
  text: string;
  long?: string | false; // a form of it that explains, for where there is room
  topic?: string; // what that explains
  x: number;
  y: number;
  room?: number; // px
  muted?: boolean;
  until?: number; // the step after which it is paler
  behind?: boolean; // left out where others are in the way
  lane?: number;
}

/** words that have room: what is written of them, and where */
export type PlacedWord = LaneWord & {
  until: number;
  lead: number; // px of the name
  named: string;
  written: string;
  rect: Rect;
};

/** a prefill or a catch-up */
export type Chunk = Segment & Required<Pick<Segment, "start" | "count" | "found">>;

const SMALL = { size: 10.5 };
export const NAME = { size: 11, bold: true };
const MOST_CHUNKS = 4;

const isBar = (segment: Segment | undefined): segment is Chunk =>
  segment?.kind === "prefill" || segment?.kind === "catchup";

/** Does `next` go on with the prompt that `segment` is a chunk of? */
export const isChunk = (next: Segment | undefined, segment: Segment) =>
  isBar(segment) && isBar(next) && next.from === (segment.to as number) + 1 && !next.found;

/**
 * "59+14" behind the last of two chunks, with a longer form for where there is room. `words` and `over`: how
 * high above `base`, the latter over drafts; 0: there is no room over them.
 */
export function countWords(
  { scale, narrow, model }: LaneScene,
  span: RequestSpan,
  last: number,
  base: number,
  { words, over }: Pick<LaneForms, "words" | "over">,
): LaneWord & { room: number } {
  let first = last;
  while (first > 0 && isChunk(span.segments[first], span.segments[first - 1])) first -= 1;
  const chunks = span.segments.slice(first, last + 1) as Chunk[];
  const { found, kind } = chunks[0];
  const end = Number(chunks[chunks.length - 1].to);
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
const mostDrafts = (span: RequestSpan) =>
  span.segments.reduce((most, { drafts = 0 }) => Math.max(most, drafts), 0);

/**
 * Finds the words that have room: a bold name and what follows it, in the long form where it fits and the topic has not
 * been explained yet. Without room for both, the name goes first. Words marked `behind` are left out where others on their
 * line are in the way.
 */
export function placeWords(painter: CanvasPainter, words: LaneWord[]) {
  const placed: PlacedWord[] = [];
  const told = new Set();
  const ends = new Map(); // by height: where the last words end
  for (const word of words) {
    const { name, whose, text, long, topic, x, y, behind } = word;
    const { room = Infinity, until = 0 } = word;
    if (behind && x < (ends.get(y) ?? -Infinity) + 4) continue;
    const lead = name ? painter.measure(name, NAME) + (text ? 4 : 0) : 0;
    const fits = (candidate: string) => lead + painter.measure(candidate, SMALL) <= room;
    const explains = long && !told.has(topic) && fits(long);
    if (explains) told.add(topic);
    const plain = explains ? long : fits(text) ? text : "";
    const full = whose ? `${whose}, ${plain}` : plain;
    const written = fits(full) ? full : plain;
    const named = name && lead - (text ? 4 : 0) <= room ? name : "";
    if (!written && !named) continue;
    const end = x + lead + painter.measure(written, SMALL);
    ends.set(y, end);
    const rect: Rect = [x - 2, y - 11, end - x + 4, 15];
    placed.push({ ...word, until, lead, written, named, rect });
  }
  return placed;
}

/** Writes words that have their places, paler after `step`. */
export function drawWords(
  painter: CanvasPainter,
  placed: PlacedWord[],
  step: number,
  ground: string,
) {
  const { muted: pale, ink } = painter.theme;
  // First all names, then all others: another font takes time.
  for (const { named, x, y, until, behind } of placed) {
    const color = until > step ? pale : ink;
    if (named) painter.text(named, x, y, { ...NAME, color, halo: behind ? undefined : ground });
  }
  for (const { written, name, x, y, lead, muted, until, behind } of placed) {
    const color = muted || until > step || name ? pale : ink;
    const halo = behind ? undefined : ground;
    if (written) painter.text(written, x + lead, y, { ...SMALL, color, halo });
  }
}
