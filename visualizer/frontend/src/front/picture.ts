/**
 * Four lanes and the memory at the end of one step. A column is a step and holds one word a lane; a tall bar is
 * reading, a thin one writing.
 */

import type { RequestSpan } from "../model/request_spans.ts";
import { count } from "../model/words.ts";
import { sentAway, sharers, waitOf } from "./facts.ts";
import { baseOf, firstInView, type Layout, topOf } from "./layout.ts";
import { drawMemory } from "./memory.ts";
import { NAMES, type Run, YOU } from "./run.ts";
import { fitting, Sheet } from "./shapes.ts";

/** What is shown: one step of a run. */
export interface Shown {
  run: Run;
  now: number;
  scene: number; // 1 to 4
  first?: number; // the first step in view
  hasPressed?: boolean; // whether the visitor pressed Enter, and did not just scroll on
  /** The visitor has asked, and the engine is starting: the step in view then, and the wait in microseconds. */
  starting?: { step: number; us: number };
}

const TALL = 16;
const THIN = 6;
const LETTER = 7.9; // px, of a word

export function picture(shown: Shown, layout: Layout): Sheet {
  const sheet = new Sheet();
  const { run, now } = shown;
  const first = shown.first ?? firstInView(layout, now);
  const x = (step: number) => layout.left + (step - first) * layout.column;
  const lit = litIn(shown);
  drawBand(sheet, layout);
  drawCursor(sheet, layout, x(now));
  for (let place = 0; place < NAMES.length; place++) {
    const request = arrivedBy(run, place, now);
    sheet.isLit = lit.lanes.has(place);
    drawName(sheet, shown, layout, place, request);
    const base = baseOf(layout, place);
    sheet.path(`M${layout.left} ${base + 0.5}H${layout.width}`, "rule");
    if (!request) continue;
    for (let step = Math.max(first, Number(request.arrived)); step <= now; step++) {
      sheet.isLit = lit.lanes.has(place) || lit.cell(place, step);
      drawCell(sheet, run, layout, place, request, step, x(step), now);
    }
    sheet.isLit = lit.lanes.has(place);
    if (shown.scene === 1) drawNext(sheet, shown, layout, place, request, x(now + 1));
  }
  sheet.isLit = true;
  if (shown.scene === 2) drawDurations(sheet, shown, layout, x, first);
  sheet.isLit = lit.lanes.has(YOU);
  drawWait(sheet, shown, layout, x, first);
  drawMemory(sheet, shown, layout, lit.blocks);
  if (shown.scene === 4) drawLoss(sheet, shown, layout, x);
  return sheet;
}

/** What has its full colour in a scene; null: all blocks. */
function litIn({ run, now, scene }: Shown) {
  const all = {
    lanes: new Set([0, 1, 2, 3]),
    cell: () => true,
    blocks: null as Set<number> | null,
  };
  if (scene === 2) {
    const readers = new Set(
      NAMES.map((_, place) => place).filter((place) => place !== YOU && longest(run, place, now)),
    );
    return { lanes: readers, cell: () => false, blocks: new Set<number>() };
  }
  if (scene === 3) {
    const shared = sharers(run, now);
    return { lanes: new Set([YOU]), cell: () => false, blocks: new Set(shared?.blocks ?? []) };
  }
  const away = scene === 4 ? sentAway(run) : null;
  if (!away) return all;
  const by = run.placeOf(away.by?.id);
  const cell = (place: number, step: number) => place === by && step === now;
  const lanes = new Set([run.placeOf(away.request.id)]);
  return { lanes, cell, blocks: new Set(away.blocks.map(({ id }) => id)) };
}

/** Whether a person arrived with the visitor and read. */
function longest(run: Run, place: number, now: number) {
  const request = run.person(place);
  const since = Number(run.you?.arrived ?? 0);
  if (!request || Number(request.arrived) < since) return false;
  for (let step = since; step <= now; step++) if (run.cell(request, step)?.reads) return true;
  return false;
}

/** A person's request if it has arrived by the end of a step. */
function arrivedBy(run: Run, place: number, now: number) {
  const request = run.person(place);
  return request && Number(request.arrived) <= now ? request : null;
}

function drawBand(sheet: Sheet, layout: Layout) {
  const { pitch, width } = layout;
  const y = topOf(layout, YOU);
  sheet.rect(-8, y, width + 16, pitch, "band");
  sheet.rect(-8, y, 3, pitch, "ink");
}

function drawCursor(sheet: Sheet, layout: Layout, x: number) {
  const { column, top } = layout;
  const end = topOf(layout, YOU + 1);
  sheet.path(`M${x - 1.5} 0V${end}M${x + column - 0.5} 0V${end}`, "cursor");
  sheet.rect(x - 1, 0, column, top - 4, "ink");
  sheet.text("now", x + column / 2 - 1, 14, "head");
}

function drawName(
  sheet: Sheet,
  { run, now, scene, starting }: Shown,
  layout: Layout,
  place: number,
  request: RequestSpan | null,
) {
  const base = baseOf(layout, place);
  sheet.rect(0, base - 12, 14, 14, `hue p${place}`);
  sheet.text(NAMES[place], 20, base, "name");
  let words = "";
  const isAsking = starting && place >= 2;
  if (isAsking) words = "waits";
  else if (!request) words = place === YOU ? "" : "not yet";
  else {
    const written = run.written(request, now);
    const isAway = request.preemptions.some(
      ({ step, resume }) => step <= now && now < (resume ?? Infinity),
    );
    if (isAway) words = "sent away";
    else if (!written && !run.cell(request, now)) words = "waits";
    else words = run.isRecorded ? "recorded" : count(written, "token");
  }
  const isStrong = scene === 4 && words === "sent away";
  sheet.text(words, layout.isNarrow ? 0 : 20, base + 19, isStrong ? "sub strong" : "sub");
}

function drawCell(
  sheet: Sheet,
  run: Run,
  layout: Layout,
  place: number,
  request: RequestSpan,
  step: number,
  x: number,
  now: number,
) {
  const cell = run.cell(request, step);
  const base = baseOf(layout, place);
  const width = layout.column - 2;
  const newest = step === now ? " newest" : "";
  if (!cell) {
    const loss = request.preemptions.find(
      (one) => one.step <= step && step < (one.resume ?? Infinity),
    );
    if (!loss) return;
    if (loss.step === step) sheet.rect(x - 1, base - 18, 3, 22, `ink${newest}`);
    sheet.rect(x + 6, base - 5, width - 8, 4, `away p${place}${newest}`);
    return;
  }
  const height = cell.reads ? TALL : THIN;
  sheet.rect(
    x,
    base - height,
    width,
    height,
    `${cell.isAgain ? "again" : "hue"} p${place}${newest}`,
  );
  if (cell.reads)
    sheet.text(`${layout.isNarrow ? "" : "reads "}${cell.reads}`, x, base - TALL - 5, "reads");
  const word = cell.word === null ? "" : shownWord(cell.word);
  if (word) sheet.text(fitting(word, width, LETTER), x + 1, base + 20, `word${newest}`);
  const { finished } = request;
  if (finished?.step === step) sheet.rect(x + width - 3, base - 18, 3, 18, `hue p${place}`);
}

/** A token as a word: a line break and a lone space are made visible. */
export function shownWord(text: string) {
  if (/^<\|.*\|>$/.test(text)) return "(end)";
  const words = text.replace(/\n/g, "⏎");
  return words.trim() ? words.trim() : words ? "␣" : "";
}

/** The token that the next step will give, for a request that goes on. */
function drawNext(
  sheet: Sheet,
  { run, now }: Shown,
  layout: Layout,
  place: number,
  request: RequestSpan,
  x: number,
) {
  if (!run.cell(request, now) || request.finished?.step === now) return;
  const base = baseOf(layout, place);
  const width = Math.min(layout.column - 2, layout.width - x);
  sheet.rect(x + 0.5, base - THIN + 0.5, width - 1, THIN - 1, `next p${place}`);
  sheet.text("…", x + 1, base + 20, "word muted");
}

/** The picture in words, for a reader who does not see it. */
export function described({ run, now, starting }: Shown) {
  const people = NAMES.map((name, place) => {
    const request = arrivedBy(run, place, now);
    if (!request) return `${name}: ${starting && place >= 2 ? "waits" : "has not asked"}`;
    const text = run.text(request, now).trim();
    return `${name}: ${count(run.written(request, now), "token")}${text ? `, ${text}` : ""}`;
  });
  const { blocks } = run.model.frame(now);
  const used = blocks.filter(({ owners }) => owners.length).length;
  return `Four lanes at step ${now}. ${people.join(". ")}. ${used} of ${blocks.length} memory blocks are used.`;
}

/** "you press Enter", and the wait until the prompt is read. */
function drawWait(
  sheet: Sheet,
  { run, now, starting, hasPressed = true }: Shown,
  layout: Layout,
  x: (step: number) => number,
  first: number,
) {
  const you = run.you;
  const base = baseOf(layout, YOU);
  const said = layout.isNarrow || !hasPressed ? "you ask" : "you press Enter";
  const line = (from: number, to: number, words: string) => {
    const start = x(from) + 1;
    if (to < first) return;
    const left = Math.max(start, layout.left);
    const tick = start >= layout.left ? `M${left} ${base - 20}V${base + 5}` : "";
    sheet.path(`${tick}M${left} ${base - 1}H${x(to) + layout.column - 4}`, "wait");
    const isRoomy = left - layout.left > 96;
    if (tick)
      sheet.text(said, isRoomy ? left - 6 : left + 5, base - 12, isRoomy ? "strong end" : "strong");
    if (words) sheet.text(words, left + 5, base + 17, "strong");
  };
  if (starting) line(starting.step, now, "waits: the engine is starting");
  if (starting || !you || Number(you.arrived) > now) return;
  const wait = waitOf(run, you, now);
  const arrived = Number(you.arrived);
  if (wait) {
    const seconds = Number.isNaN(wait.us) ? "" : ` ${(wait.us / 1e6).toFixed(2)} s`;
    line(wait.from, wait.to, `waits${seconds}`);
  } else if (arrived >= first) {
    sheet.path(`M${x(arrived) - 1} ${base - 20}V${base + 5}`, "wait");
    sheet.text(said, x(arrived) - 7, base - 12, "strong end");
  }
}

/** How long each step took, above the first lane: a step with a piece of a long prompt is longer. */
function drawDurations(
  sheet: Sheet,
  { run, now }: Shown,
  layout: Layout,
  x: (step: number) => number,
  first: number,
) {
  for (let step = Math.max(first, 1); step <= now; step++) {
    const us = run.took(step);
    if (Number.isNaN(us)) continue;
    const isLong = run.model.requests.some((one) => run.cell(one, step)?.reads);
    sheet.isLit = isLong;
    const y = step === now ? layout.top + 10 : 14;
    sheet.text(`${Math.round(us / 1000)} ms`, x(step), y, isLong ? "reads strong" : "reads");
  }
}

/** The arrow from the block to the request that needed it. */
function drawLoss(sheet: Sheet, { run, now }: Shown, layout: Layout, x: (step: number) => number) {
  const away = sentAway(run);
  const by = run.placeOf(away?.by?.id);
  if (!away || away.step !== now || by < 0) return;
  sheet.isLit = true;
  const own = baseOf(layout, run.placeOf(away.request.id));
  const right = x(now) + layout.column + 6;
  if (away.back === null || away.back > now) {
    sheet.text("first in line", right, own - 6, "strong");
    if (!layout.isNarrow) sheet.text("to return", right, own + 13, "sub");
  }
  const block = away.blocks.find(({ fate, to }) => fate === "taken" && to === away.by?.id);
  if (!block || away.by === away.request || layout.isNarrow) return;
  const { left, memory } = layout;
  const row = Math.floor(block.id / layout.perRow);
  const to = left + (block.id % layout.perRow) * layout.block.pitch + layout.block.width / 2;
  const y = baseOf(layout, by) - 3;
  const turn = Math.max(to, right + 96);
  const top = memory + row * layout.block.row - 3;
  const bend = turn === to ? "" : `V${memory - 16}H${to}`;
  sheet.path(`M${right - 2} ${y}H${turn}${bend}V${top}`, "arrow");
  sheet.path(`M${right - 4} ${y}l9 -4v8z`, "ink");
  sheet.text(`${NAMES[by]} needs this block`, right + 12, y + 18, "strong");
  sheet.text("to go on writing", right + 12, y + 34, "sub");
}
