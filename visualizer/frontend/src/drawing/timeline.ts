/**
 * The timeline: a lane per request, with its name and its state at the cursor in the gutter.
 *
 * `lane.ts` draws a request, `lane_packing.ts` assigns its lane, `cursor.ts` draws the cursor.
 */

import { firstWhere } from "../model/columns.ts";
import type { Frame } from "../model/frame.ts";
import type { Model } from "../model/model.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import type { CanvasPainter } from "./canvas_painter.ts";
import { AFTER, type CursorScene, cursorBand, cursorLines, fadedAfter, veil } from "./cursor.ts";
import { drawLife, formsOf } from "./lane.ts";
import { laneAt, occupantsBetween, type Packing, sitterAt } from "./lane_packing.ts";
import { drawWords, type LaneWord, placeWords } from "./lane_words.ts";
import { axisTicks } from "./time_axis.ts";
import { timeTicks } from "./wall_axis.ts";

export type Fork = RequestSpan & { forked: NonNullable<RequestSpan["forked"]> };

export interface TimelineScene extends CursorScene {
  model: Model;
  frame: Frame;
  selected: number | null;
  narrow: boolean;
  width: number;
  packing: Packing;
  forks: Fork[]; // requests that share a prompt, by the step of their fork
  laneHeight: number;
  scroll: number; // px above the first visible row
  viewHeight: number;
  columns: { stateAt: number; end: number }; // x of the gutter's columns
  still: string; // a key that changes when the lanes have to be drawn again
}

export const BLEED = 6; // px by which the selected lane's band extends beyond the panel
export const HEADROOM = 3; // px above the first lane, for its text
const FINISH = 3; // px after the last step, for marks of requests that finished in it

/** Draws the visible lanes. */
export function drawTimeline(painter: CanvasPainter, scene: TimelineScene) {
  const { scale, scroll, viewHeight, packing, laneHeight: pitch } = scene;
  const first = Math.max(0, Math.floor(scroll / pitch));
  const last = Math.min(packing.lanes.length - 1, Math.floor((scroll + viewHeight) / pitch));
  const plot = [scale.left - 1, -HEADROOM, scene.width + BLEED - scale.left + 1] as const;
  cursorBand(painter, scene, -HEADROOM, viewHeight);
  const chosen = chosenLane(scene);
  if (chosen != null && chosen >= first && chosen <= last) drawChosenBand(painter, scene, chosen);
  const lives = painter.layer(`${scene.still} ${scroll} ${pitch}`, (layer) => {
    const words: LaneWord[] = [];
    for (let lane = first; lane <= last; lane += 1) words.push(...drawLane(layer, scene, lane));
    layer.words = placeWords(layer, words);
  });
  painter.lay(lives);
  const ground = (lane: number | undefined) => painter.theme[lane === chosen ? "band" : "ground"];
  painter.textsLast(() => {
    for (let lane = first; lane <= last; lane += 1)
      drawNow(painter, scene, lane, { chosen: lane === chosen, ground: ground(lane) });
  });
  const { forks } = scene;
  const from = firstWhere(forks.length, (at) => forks[at].forked.step >= scale.first);
  for (let at = from; at < forks.length && forks[at].forked.step <= scale.last; at += 1)
    drawElbow(painter, scene, forks[at]);
  cursorLines(painter, scene, -HEADROOM, viewHeight);
  // Outlined words take longer than all else. They are drawn once as they are before the cursor, once as they are after it.
  const { words } = lives;
  const worded = (within: CanvasPainter, step: number) =>
    within.layer(`${lives.drawn}`, (layer) => drawWords(layer, words, step, painter.theme.ground));
  const before = worded(lives, Infinity);
  const after = worded(before, -Infinity);
  const now = fadedAfter(scene);
  painter.clipped(...plot, viewHeight + HEADROOM, () => {
    const rects = (isAfter: boolean) =>
      words
        .filter(({ until, lane }) => lane !== chosen && until > now === isAfter)
        .map(({ rect }) => rect);
    painter.layParts(before, rects(false));
    painter.layParts(after, rects(true));
    const own = words.filter(({ lane }) => lane === chosen);
    drawWords(painter, own, now, ground(chosen ?? undefined));
    for (const handover of handovers(scene)) drawHandover(painter, scene, handover);
  });
}

/** The lane of the selected request, unless another has it at the cursor. */
function chosenLane({ packing, model, selected, step }: TimelineScene) {
  const index = model.request(selected)?.index;
  const lane = laneAt(packing, index);
  if (lane == null) return null;
  const now = sitterAt(packing.lanes[lane], step);
  return now && now.index !== index ? null : lane;
}

/** The axis below the lanes, with its unit. */
export function drawAxis(
  painter: CanvasPainter,
  {
    scale,
    narrow,
    model,
    name = "time",
  }: Pick<TimelineScene, "scale" | "narrow" | "model"> & { name?: string },
) {
  const { muted: color } = painter.theme;
  if (scale.kind === "time") {
    painter.text(name, scale.left, 15, { color });
    const end = scale.left + painter.measure(name) + 12;
    for (const { place, words } of timeTicks(scale, narrow ? 56 : 64)) {
      const x = scale.at(place);
      const half = painter.measure(words) / 2;
      painter.line(x, 0, x, 4, painter.theme.faint);
      if (x - half > end && x < scale.right + 4)
        painter.text(words, x, 15, { color, align: "center" });
    }
    return;
  }
  const lead = `step ${scale.first}`;
  const end = scale.left + painter.measure(lead) + 16;
  const isSeen = (tick: number) =>
    scale.middle(tick) >= end && scale.middle(tick) <= scale.right + 4;
  const ticks = axisTicks(scale, narrow ? 44 : 50).filter(isSeen);
  // If steps are so wide that the first has its number in its middle, "step" is enough.
  const words = ticks[0] === scale.first ? "step" : lead;
  if (scale.first >= model.firstStep) painter.text(words, scale.left, 15, { color });
  for (const tick of ticks)
    painter.text(String(tick), scale.middle(tick), 15, { color, align: "center" });
}

/** Draws the visible requests of one lane. Returns the labels to write over it at the end. */
function drawLane(painter: CanvasPainter, scene: TimelineScene, lane: number): LaneWord[] {
  const { scale, scroll, packing, laneHeight: pitch, width } = scene;
  const top = lane * pitch - scroll;
  const base = top + pitch - formsOf(pitch).below;
  const words: LaneWord[] = [];
  const end = width + BLEED;
  const inLane = { ...scene, end };
  const plot = scale.right + FINISH - scale.left + 1;
  painter.clipped(scale.left - 1, top - HEADROOM, plot, pitch + HEADROOM, () => {
    for (const stay of occupantsBetween(packing.lanes[lane], scale.first, scale.last)) {
      words.push(...drawLife(painter, inLane, stay, base));
    }
  });
  return words.map((word) => {
    const room = Math.min(word.room ?? Infinity, end - word.x);
    return { ...word, room, lane };
  });
}

/** The parts of a lane that depend on the cursor: the veil over later steps, and the name in the gutter. */
function drawNow(
  painter: CanvasPainter,
  scene: TimelineScene,
  lane: number,
  { chosen, ground }: { chosen: boolean; ground: string },
) {
  const { scroll, packing, laneHeight: pitch, step, model, width } = scene;
  const top = lane * pitch - scroll;
  veil(painter, scene, top, pitch - 1, ground, width + BLEED);
  const now = sitterAt(packing.lanes[lane], step);
  const base = top + pitch - formsOf(pitch).below;
  if (now) drawGutter(painter, scene, model.requests[now.index], base);
  else if (chosen) drawGutter(painter, scene, model.request(scene.selected) as RequestSpan, base);
  else drawEmptySeat(painter, scene, base, pitch);
}

const SWATCH = 9; // px

function drawChosenBand(painter: CanvasPainter, scene: TimelineScene, lane: number) {
  const { width, scroll, laneHeight: pitch, model, selected, step } = scene;
  const top = lane * pitch - scroll;
  painter.fill(-BLEED, top - 1, width + 2 * BLEED, pitch, painter.theme.band);
  painter.fill(-BLEED, top - 1, 3, pitch, painter.hue(model.laneOf(selected, step)));
}

function drawGutter(
  painter: CanvasPainter,
  { frame, columns }: TimelineScene,
  span: RequestSpan,
  base: number,
) {
  const { ink, muted } = painter.theme;
  const { kind, words } = frame.phase(span.id);
  const name = painter.cutName(span.name, columns.stateAt - 17, { bold: true });
  painter.mark(0, base - 9, 10, 10, frame.model.laneOf(span.id, frame.step));
  painter.text(name, 13, base, { bold: true });
  const style = kind === "preempted" ? { bold: true, color: ink } : { color: muted };
  const state = painter.cut(words, columns.end - columns.stateAt, style);
  painter.text(state, columns.stateAt, base, style);
}

function drawEmptySeat(
  painter: CanvasPainter,
  { narrow }: TimelineScene,
  base: number,
  pitch: number,
) {
  const { faint, muted, rule } = painter.theme;
  painter.frame(0, base - SWATCH, SWATCH, SWATCH, pitch < 16 ? rule : faint);
  if (pitch >= 16)
    painter.text(narrow ? "empty" : "empty seat", SWATCH + 4, base, { color: muted, size: 10.5 });
}

/** A line from the sibling's lane, in the step of the fork, to the request's own first step. */
function drawElbow(
  painter: CanvasPainter,
  scene: TimelineScene,
  { id, lane: ownLane, forked }: Fork,
) {
  const { scale, packing, laneHeight: pitch, scroll, model, viewHeight } = scene;
  const baseOf = (request: number) => {
    const lane = laneAt(packing, model.requestSpan(request).index) as number;
    return (lane + 1) * pitch - formsOf(pitch).below - scroll;
  };
  const x = scale.middle(forked.step);
  const y = baseOf(id) - 2.5;
  const hue = painter.hue(ownLane);
  painter.clipped(scale.left - 1, 0, scale.right - scale.left, viewHeight, () =>
    painter.faded(forked.step > fadedAfter(scene) ? AFTER : 1, () => {
      painter.line(x, baseOf(forked.parent), x, y, hue, 1.5);
      painter.line(x - 0.75, y, scale.end(forked.step) + 0.5, y, hue, 1.5);
    }),
  );
}

/** The lanes of preempted requests and of the requests that took their blocks at the cursor. */
function handovers({ model, frame, packing }: TimelineScene): { from: number; to: number }[] {
  const laneOf = (request: number) => laneAt(packing, model.request(request)?.index);
  const lanes = frame.story.preemptions
    .map(({ request, by }) => ({ from: laneOf(request), to: laneOf(by) }))
    .filter(({ from, to }) => to != null && to !== from);
  return lanes as { from: number; to: number }[];
}

/** An arrow from the victim's lane to the lane that took its block. */
function drawHandover(
  painter: CanvasPainter,
  { scale, laneHeight: pitch, scroll, step }: TimelineScene,
  { from, to }: { from: number; to: number },
) {
  const start = (from + 1) * pitch - scroll - 8;
  const isUp = to < from;
  const tip = isUp ? (to + 1) * pitch - scroll - 1 : to * pitch - scroll + 6;
  painter.arrow(scale.middle(step), isUp ? start : start + 4, tip, painter.theme.ink);
}
