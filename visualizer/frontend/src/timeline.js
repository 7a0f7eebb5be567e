/**
 * The timeline: a lane per request. Colour says who; form says what happened.
 *
 *   prefill     a 14 px bar with its token count; what was found in the cache is its hatched top
 *   decode      5 px on the baseline, one dash a step
 *   waiting     a thin line with a tick where it began, and its reasons in words
 *   preempted   an ink bar, dashes in the request's hue, an arrowhead where it resumes
 *   finished    a mark and the reason
 *   fork        an elbow from the sibling's lane
 *
 * This file draws lanes; `lane_packing.js` says which request is in which, `strip.js` draws the cursor.
 */

import { plain } from "./model/index.js";
import { occupant, occupantsBetween } from "./lane_packing.js";
import { cursorBand, cursorLines, veil } from "./strip.js";
import { axisTicks } from "./time_axis.js";

export const BLEED = 6;
export const HEADROOM = 3; // above the first lane, for its words
const BAR = 14;
const SMALL = { size: 10.5 };
const AFTER = 0.42;

/** Lanes are 22 px; a phone has less room, so does a projector's picture of a class. */
export const laneHeight = (narrow, unit) => (narrow ? 19 : unit > 1 ? 20 : 22);

/**
 * Draws the lanes that can be seen. `scene` has model, frame, scale, step, selected, narrow, width,
 * packing, spans, laneHeight, scroll (pixels above the first visible row), viewHeight, columns (x of
 * the gutter's columns) and hovered.
 */
export function drawTimeline(pencil, scene) {
  const { scale, scroll, viewHeight, packing, laneHeight: pitch, spans, step } = scene;
  cursorBand(pencil, scene, -HEADROOM, viewHeight);
  const first = Math.max(0, Math.floor(scroll / pitch));
  const last = Math.min(packing.lanes.length - 1, Math.floor((scroll + viewHeight) / pitch));
  const words = [];
  const selectedLane = scene.selected == null ? -1 : packing.laneOf[scene.model.request(scene.selected)?.hueIndex];
  for (let lane = first; lane <= last; lane += 1) {
    const top = lane * pitch - scroll;
    const base = top + pitch - 4;
    const chosen = lane === selectedLane;
    if (chosen) drawChosenBand(pencil, scene, top);
    const lives = occupantsBetween(packing.lanes[lane], spans, scale.first, scale.last).map(
      (index) => scene.model.requests[index],
    );
    pencil.clipped(scale.left - 1, top - HEADROOM, scene.width + BLEED - scale.left + 1, pitch + HEADROOM, () => {
      const ground = chosen ? pencil.theme.band : pencil.theme.ground;
      const own = [];
      for (const life of lives) drawLife(pencil, scene, life, base, own);
      veil(pencil, scale, step, top, pitch - 1, ground, scene.width + BLEED);
      words.push(...own.map((word) => ({ ...word, ground })));
    });
    drawGutter(pencil, scene, scene.model.requests[occupant(packing.lanes[lane], spans, step)], base);
  }
  for (const life of forksToDraw(scene)) drawElbow(pencil, scene, life);
  cursorLines(pencil, scene, -HEADROOM, viewHeight);
  pencil.clipped(scale.left - 1, -HEADROOM, scene.width + BLEED - scale.left + 1, viewHeight + HEADROOM, () => {
    for (const word of words) placeWord(pencil, scene, word);
    drawHandovers(pencil, scene);
  });
}

/** The axis below the lanes. It always says what it counts. */
export function drawAxis(pencil, { scale, narrow, model }) {
  const ticks = axisTicks(scale, narrow ? 44 : 50);
  const { muted: color } = pencil.theme;
  const lead = `step ${scale.first}`;
  const end = scale.left + pencil.measure(lead) + 10;
  if (scale.first >= model.firstStep) pencil.text(lead, scale.left, 15, { color });
  for (const tick of ticks) {
    const x = scale.x(tick) + scale.width / 2;
    if (x < end || x > scale.right + 4) continue;
    pencil.text(String(tick), x, 15, { color, align: "center" });
  }
}

function drawChosenBand(pencil, { width, laneHeight: pitch, model, selected }, top) {
  pencil.fill(-BLEED, top - 1, width + 2 * BLEED, pitch, pencil.theme.band);
  pencil.fill(-BLEED, top - 1, 3, pitch, pencil.hue(model.request(selected).hueIndex));
}

function drawGutter(pencil, { frame, columns }, life, base) {
  const { theme } = pencil;
  const { kind, words } = frame.phase(life.id);
  pencil.fill(0, base - 9, 9, 9, pencil.paint(life.hueIndex));
  pencil.text(pencil.cut(life.name, columns.stateAt - 17, { bold: true }), 13, base, { bold: true });
  const moment = kind === "preempted";
  const room = columns.end - columns.stateAt;
  pencil.text(pencil.cut(words, room, { bold: moment }), columns.stateAt, base, {
    bold: moment,
    color: moment ? theme.ink : theme.muted,
  });
}

function drawLife(pencil, scene, life, base, words) {
  const { scale, model } = scene;
  const { theme } = pencil;
  const paint = pencil.paint(life.hueIndex);
  const hue = pencil.hue(life.hueIndex);
  const end = (life.finished?.step ?? model.lastStep) + 1;
  const begin = life.segments.find((segment) => segment.kind !== "waiting")?.from ?? end;
  if (begin < end) pencil.fill(scale.x(begin), base, scale.x(end) - scale.x(begin), 1, theme.rule);
  for (const [i, segment] of life.segments.entries()) {
    const to = segment.to ?? model.lastStep;
    if (to < scale.first || segment.from > scale.last) continue;
    if (segment.kind === "decode") drawDecodes(pencil, scale, segment.from, to, base, paint);
    else if (segment.kind === "waiting") drawWaiting(pencil, scene, life, segment, base, words);
    else if (segment.kind === "preempted") drawGap(pencil, scene, segment, base, hue);
    else if (segment.kind === "stalled") drawStall(pencil, scale, segment.from, to, base);
    else {
      drawBar(pencil, scale, segment, base, paint, hue);
      const last = !isChunk(life.segments[i + 1], segment);
      if (last && scale.width >= 3) words.push(countWord(scene, life, i, base));
    }
  }
  if (life.finished) drawFinish(pencil, scene, life, base, hue, words);
}

const isBar = (segment) => segment?.kind === "prefill" || segment?.kind === "catchup";
const isChunk = (next, segment) => isBar(segment) && isBar(next) && next.from === segment.to + 1 && !next.found;

function drawDecodes(pencil, scale, from, to, base, paint) {
  const first = Math.max(from, scale.first);
  const last = Math.min(to, scale.last);
  if (scale.width < 4) {
    const left = scale.x(first);
    pencil.fill(left, base - 5, Math.max(3, scale.x(last + 1) - left), 5, paint);
    return;
  }
  for (let step = first; step <= last; step += 1) {
    pencil.fill(scale.x(step) + 0.5, base - 5, scale.width - 1, 5, paint);
  }
}

function drawBar(pencil, scale, { from, count, found }, base, paint, hue) {
  const slit = scale.width < 4 ? 0 : 0.5;
  const x = scale.x(from) + slit;
  const width = Math.max(3, scale.width - 2 * slit);
  const computed = found ? Math.max(4, Math.min(BAR - 4, (BAR * count) / (count + found))) : BAR;
  pencil.fill(x, base - computed, width, computed, paint);
  if (!found) return;
  pencil.fill(x, base - BAR, width, BAR - computed, pencil.hatch(hue, 1.6));
  pencil.frame(x, base - BAR, width, BAR - computed + 1, hue);
}

/** "59+14" for two chunks; the first bar with room to spare says what the numbers are. */
function countWord(scene, life, last, base) {
  const { scale, narrow, told } = scene;
  let first = last;
  while (first > 0 && isChunk(life.segments[first], life.segments[first - 1])) first -= 1;
  const chunks = life.segments.slice(first, last + 1);
  const found = chunks[0].found;
  const after = life.segments.slice(last + 1).find((segment) => segment.kind !== "decode");
  const to = after ? after.from : (life.finished?.step ?? scene.model.lastStep) + 1;
  const short = chunks.length > 4 ? `${chunks.reduce((sum, { count }) => sum + count, 0)} in ${chunks.length} chunks` : chunks.map(({ count }) => count).join("+");
  let long = short;
  if (found) long = `${short} + ${found} cached`;
  else if (chunks[0].kind === "prefill") {
    long = narrow ? `${short} prefill, then one per step` : `${short} tokens of prefill, then one token per step`;
  }
  const step = chunks.at(-1).to;
  return {
    x: scale.x(step + 1) + 2,
    y: base - 8,
    room: scale.x(to) - scale.x(step + 1) - 4,
    long,
    short,
    topic: found ? "found" : "prefill",
    told,
    muted: step > scene.step,
  };
}

function placeWord(pencil, scene, word) {
  const { theme } = pencil;
  const { told } = word;
  let text = word.text ?? word.short;
  if (word.long && !told.has(word.topic) && pencil.measure(word.long, SMALL) <= word.room) {
    told.add(word.topic);
    text = word.long;
  }
  if (word.room != null && pencil.measure(text, SMALL) > word.room) return;
  pencil.text(text, word.x, word.y, {
    ...SMALL,
    color: word.muted ? theme.muted : theme.ink,
    halo: word.ground,
  });
}

function drawWaiting(pencil, scene, life, segment, base, words) {
  const { scale, model } = scene;
  const y = base - 2.5;
  const left = scale.x(segment.from);
  const right = scale.x((segment.to ?? model.lastStep) + 1);
  const { muted } = pencil.theme;
  pencil.line([[left, y], [right, y]], muted, 1.5);
  pencil.line([[left, y - 4], [left, y + 4]], muted, 1.5);
  const shown = Math.max(left, scale.left);
  const room = Math.min(right, scale.right) - shown - 8;
  const text = fitting(pencil, plain(model.waitWords(life, segment)), room);
  if (text) words.push({ text, x: shown + 4, y: y - 4, muted: true });
}

/** As many of the reasons ("batch full, then behind r9") as fit, the first ones first. */
function fitting(pencil, text, room) {
  const reasons = text.split(", then ");
  while (reasons.length && pencil.measure(reasons.join(", then "), SMALL) > room) reasons.pop();
  return reasons.join(", then ");
}

function drawGap(pencil, { scale, model }, segment, base, hue) {
  const left = scale.x(segment.from);
  const right = scale.x((segment.to ?? model.lastStep) + 1);
  const y = base - 2.5;
  pencil.line([[left + 1, base - 11], [left + 1, base]], pencil.theme.ink, 2);
  const resumes = segment.resume != null;
  if (right - left > 10) pencil.line([[left + 3, y], [right - (resumes ? 6 : 0), y]], hue, 3, [3, 3]);
  if (resumes) pencil.tip(right, y, "right", hue);
}

function drawStall(pencil, scale, from, to, base) {
  pencil.line([[scale.x(from), base - 2.5], [scale.x(to + 1), base - 2.5]], pencil.theme.muted, 1.5, [1.5, 3]);
}

function drawFinish(pencil, scene, life, base, hue, words) {
  const { scale } = scene;
  const { step, reason } = life.finished;
  const x = scale.x(step + 1);
  if (x < scale.left || x > scale.right + 2) return;
  pencil.line([[x + 1, base - 11], [x + 1, base]], hue, 3);
  const lane = scene.packing.lanes[scene.packing.laneOf[life.hueIndex]];
  const next = lane[lane.indexOf(life.hueIndex) + 1];
  const end = next == null ? scene.width + BLEED : scale.x(scene.spans[next].from);
  words.push({ text: reason, x: x + 5, y: base, muted: true, room: end - x - 5 });
}

function forksToDraw({ model, scale }) {
  return model.requests.filter(({ forked }) => forked && forked.step >= scale.first && forked.step <= scale.last);
}

/** From the sibling's lane, in the step of the fork, to the first step of its own. */
function drawElbow(pencil, scene, life) {
  const { scale, packing, laneHeight: pitch, scroll, model, viewHeight, step } = scene;
  const bottomOf = (id) => (packing.laneOf[model.request(id).hueIndex] + 1) * pitch - 4 - scroll;
  const from = bottomOf(life.forked.parent);
  const base = bottomOf(life.id);
  const x = scale.x(life.forked.step) + scale.width / 2;
  pencil.clipped(scale.left - 1, 0, scale.right - scale.left, viewHeight, () =>
    pencil.faded(life.forked.step > step ? AFTER : 1, () =>
      pencil.line([[x, from], [x, base - 2.5], [scale.x(life.forked.step + 1) + 0.5, base - 2.5]], pencil.hue(life.hueIndex), 1.5),
    ),
  );
}

/** At the cursor: an arrow from each victim to the lane that took its block. */
function drawHandovers(pencil, { scale, packing, laneHeight: pitch, scroll, model, step }) {
  for (const life of victimsAt(model, step)) {
    const { by } = life.preemptions.find((preemption) => preemption.step === step);
    const from = packing.laneOf[life.hueIndex];
    const to = packing.laneOf[model.request(by)?.hueIndex];
    if (to == null || to === from) continue;
    const x = scale.x(step) + scale.width / 2;
    const { ink } = pencil.theme;
    const middle = (from + 1) * pitch - scroll - 8;
    if (to < from) {
      const tip = (to + 1) * pitch - scroll - 1;
      pencil.line([[x, middle], [x, tip + 5]], ink, 1.4);
      pencil.tip(x, tip, "up", ink);
    } else {
      const tip = to * pitch - scroll + 6;
      pencil.line([[x, middle + 4], [x, tip - 5]], ink, 1.4);
      pencil.tip(x, tip, "down", ink);
    }
  }
}

function victimsAt(model, step) {
  if (!model.measures.preempted[step - model.firstStep]) return [];
  return model.requests.filter(({ preemptions }) => preemptions.some((preemption) => preemption.step === step));
}
