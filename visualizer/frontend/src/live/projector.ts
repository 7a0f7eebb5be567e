/**
 * The projector's view: what a class has to read from the back of a room. One lane per person with the last words
 * of the answer, and beside them the memory and the decisions. Everything shows the step that the board shows.
 *
 * It is drawn for a width of 1920 px and scales with the screen.
 */

import { LevelControl, levelNamed } from "../board/levels.ts";
import { patchChildren } from "../board/patch_children.ts";
import { dress } from "../board/theme.ts";
import { drawBlocks } from "../drawing/blocks.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { cursorBand, cursorLines } from "../drawing/cursor.ts";
import { h, onResize, plural } from "../drawing/html.ts";
import { drawLife } from "../drawing/lane.ts";
import type { Theme } from "../drawing/palette.ts";
import { drawSeats, SEATS_HEIGHT } from "../drawing/seats.ts";
import { axisTicks, type Scale, stepAxis, timeScale } from "../drawing/time_axis.ts";
import { drawWaits } from "../drawing/wait_line.ts";
import { chip, type WordContext, wordNodes } from "../drawing/words_html.ts";
import type { Frame } from "../model/frame.ts";
import { compose, plain } from "../model/index.ts";
import { missing } from "../model/knowledge.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { LEVELS, type Level } from "../model/sentence.ts";
import type { LiveBoard } from "./live_board.ts";
import { newest, outputAt, peopleAt, type Row } from "./people.ts";
import css from "./projector.css";

type Lane = { row: Row; span: RequestSpan; base: number };

const DESIGN = 1920; // px
const STEPS = 40; // in the lanes
const PITCH = 20; // of a lane, in units of the drawing; a unit has 1.1 to 1.6 px
const UNIT = { least: 1.1, usual: 1.35, most: 1.6 };
const AXIS = 18;
const COLUMNS = { state: 0.12, plot: 0.205, words: 0.765 }; // where they begin, as shares of the width
const NAME = { size: 14, bold: true };
const STATE = { size: 12 };
const WORDS = { size: 11.5, mono: true };
const LONG = 200; // letters of a sentence that three lines hold
const DECISIONS = 6;
const PREFIXES = 3;
const NAMED = 4; // requests in one line
const MAP_HEIGHT = 250;
const SPECIAL = /<\|\w+\|>/g; // tokens of a chat that are no text

export class ProjectorView {
  host: HTMLElement;
  sentence = h("p.sentence");
  moment = h("p.moment.muted", { role: "status" });
  canvas = h("canvas", { role: "img" });
  painter = new CanvasPainter(this.canvas);
  lanes = h("div.lanes-box", this.canvas);
  seats = h("canvas", { role: "img", "aria-label": "Seats" });
  seatsPainter = new CanvasPainter(this.seats);
  level: Level;
  #remember: (level: Level) => void;
  levels = new LevelControl((level) => this.showLevel(level));
  counts = h("dl.whole");
  map = h("canvas", { role: "img" });
  mapPainter = new CanvasPainter(this.map);
  mapCounts = h("span.count.small.muted");
  decisions = h("ul.decided.whole");
  prefixes = h("ul.prefixes");
  prefixTitle = h("h2", "Shared prefixes", h("span.count.small.muted", "with their readers"));
  decisionTitle = h("h2.whole");
  /** The place of the page's join card and controls. */
  slot = h("div.slot");
  right = h(
    "div.stage-right.stack",
    this.slot,
    this.levels.element,
    this.counts,
    h("h2", "KV blocks", this.mapCounts),
    this.map,
    this.decisionTitle,
    this.decisions,
    this.prefixTitle,
    this.prefixes,
  );
  /** Of a px at a width of 1920. */
  px = 1;
  live: LiveBoard | null = null;

  /** @param remember is told the level that the reader chooses */
  constructor(
    host: HTMLElement,
    level: string | null = null,
    remember: (level: Level) => void = () => {},
  ) {
    this.host = host;
    this.level = levelNamed(level) ?? "lanes";
    this.#remember = remember;
    onResize(host, () => this.live && this.show(this.live), new AbortController().signal);
    host.addEventListener("keydown", (event) => this.#key(event));
    Object.assign(host, { tabIndex: 0, role: "group", ariaLabel: "Projector's view" });
    host.classList.add("underglass", "stage");
    const left = h("div.stage-left.stack", this.sentence, this.moment, this.lanes, this.seats);
    host.append(h("style", css), left, this.right);
  }

  /** Shows less or more: a class starts with the lanes. */
  showLevel(level: Level) {
    this.level = level;
    this.#remember(level);
    if (this.live) this.show(this.live);
  }

  /** Draws the step that the board of a live feed shows. */
  show(live: LiveBoard) {
    this.live = live;
    const { board, shows } = live;
    const { model, theme, store } = board;
    this.host.toggleAttribute("data-empty", !shows);
    if (!this.host.clientWidth) return;
    dress(this.host, theme.name);
    this.px = this.host.ownerDocument.documentElement.clientWidth / DESIGN;
    this.host.style.setProperty("--px", `${this.px}px`);
    if (!shows) {
      this.sentence.textContent = "No requests yet.";
      return;
    }
    const frame = model.frame(store.step);
    const context = { model, frame, theme, selected: null };
    this.host.dataset.step = `${frame.step}`;
    this.host.dataset.level = this.level;
    this.levels.show(this.level);
    this.#writeSentence(frame, context);
    this.#writeMoment(live, frame);
    this.#writeCounts(frame);
    this.#writeDecisions(frame, context);
    this.#writePrefixes(frame);
    if (this.level !== "lanes") this.#drawMap(frame, theme);
    this.#drawSeats(frame, theme);
    this.#drawLanes(frame, theme);
  }

  #writeSentence(frame: Frame, context: WordContext) {
    const { spans } = compose(frame, this.level);
    this.sentence.classList.toggle("long", plain(spans).length > LONG);
    patchChildren(this.sentence, wordNodes(spans, context));
  }

  #writeMoment({ following, status, newest: now }: LiveBoard, { step }: Frame) {
    const engine = status.paused && !status.until ? `paused at step ${now}` : `at step ${now}`;
    const words = following
      ? [status.paused && !status.until ? "The engine is paused." : "Live."]
      : [h("strong", `Frozen at step ${step}. `), `The engine is ${engine}.`];
    this.moment.replaceChildren(...words);
  }

  #writeCounts(frame: Frame) {
    const { held, all } = frame.seats;
    const { free, cached } = frame.counts;
    const { num_blocks: blocks } = frame.state.settings;
    let preemptions = 0;
    for (const span of frame.model.requests)
      preemptions += span.preemptions.filter(({ step }) => step <= frame.step).length;
    const entries: [number, string, string][] = [
      [held, `of ${all}`, "seats taken"],
      [frame.waiting.length, "", "waiting"],
      [blocks - free - cached, `of ${blocks}`, "blocks used"],
      [preemptions, "", preemptions === 1 ? "preemption" : "preemptions"],
    ];
    this.counts.replaceChildren(
      ...entries.map(([value, of, what]) =>
        h("div.stack", h("dd", `${value}`, h("span", of && ` ${of}`)), h("dt.muted", what)),
      ),
    );
  }

  /** The decisions; those that only decode one token are counted. */
  #writeDecisions(frame: Frame, context: WordContext) {
    const { decisions } = frame;
    const telling = decisions.filter(({ plain: isPlain }) => !isPlain);
    const alike = decisions.length - telling.length;
    telling.sort((a, b) => Number(b.hot) - Number(a.hot)); // the most important one is never cut
    const lines = telling.slice(0, DECISIONS).map((decision) => {
      const ids = decision.requests ?? (decision.request == null ? [] : [decision.request]);
      const chips = ids.slice(0, NAMED).flatMap((id) => [chip(id, context), " "]);
      const more = ids.length > NAMED ? `and ${ids.length - NAMED} more ` : "";
      return h(
        "li",
        { class: decision.hot ? "hot" : null },
        ...chips,
        more,
        ...wordNodes(decision.spans, context),
      );
    });
    if (alike) {
      const more = telling.length ? "more " : "";
      const words = `${alike} ${more}${alike === 1 ? "decode" : "decodes"}, 1 token each`;
      lines.push(h("li", words));
    }
    const left = telling.length - DECISIONS;
    if (left > 0) lines.push(h("li.muted", `and ${plural(left, "more line")}`));
    if (!lines.length) lines.push(h("li.muted", "No decision in this step."));
    this.decisions.replaceChildren(...lines);
    this.decisionTitle.textContent = `Decisions of step ${frame.step}`;
  }

  /** The prefixes that most running requests share. */
  #writePrefixes({ tree }: Frame) {
    const shared = tree
      .filter(({ owners }) => owners.length > 1)
      .sort((a, b) => b.owners.length - a.owners.length)
      .slice(0, PREFIXES);
    this.prefixTitle.hidden = !shared.length;
    this.prefixes.replaceChildren(
      ...shared.map(({ owners, text, blocks }) =>
        h(
          "li",
          h("b", `×${owners.length}`),
          h("span.mono.cut", text.replace(SPECIAL, "").trim() || plural(blocks.length, "block")),
        ),
      ),
    );
  }

  #drawMap(frame: Frame, theme: Theme) {
    const { model } = frame;
    const unit = this.px * 1.1;
    const width = this.right.clientWidth / unit;
    const grid = cellGrid(frame.blocks.length, width, (MAP_HEIGHT * this.px) / unit);
    this.mapPainter.begin(width, grid.height, unit, theme);
    const claim = {
      held: new Set<number>(),
      lost: new Set<number>(),
      wanted: new Set<number>(),
      table: null,
    };
    drawBlocks(this.mapPainter, { model, frame, grid, claim, selected: null, untouched: true });
    const { unshared, shared, cached, free } = frame.counts;
    this.mapCounts.textContent = `${unshared} unshared, ${shared} shared, ${cached} cached, ${free} free`;
    this.map.setAttribute("aria-label", `KV blocks: ${this.mapCounts.textContent}`);
  }

  #drawSeats(frame: Frame, theme: Theme) {
    const { model } = frame;
    this.seats.hidden = !!missing(model, "settings", "admissions");
    if (this.seats.hidden) return;
    const unit = this.px * UNIT.usual;
    const width = (this.lanes.clientWidth * COLUMNS.words) / unit;
    this.seatsPainter.begin(width, SEATS_HEIGHT, unit, theme);
    drawSeats(this.seatsPainter, { frame, model, width, selected: null });
  }

  #drawLanes(frame: Frame, theme: Theme) {
    const { model, step } = frame;
    const height = this.lanes.clientHeight;
    const room = Math.max(1, Math.floor((height / this.px - AXIS) / (PITCH * UNIT.least)));
    const { rows, hidden } = peopleAt(model, step, room);
    const fitting = (height / this.px - AXIS * UNIT.usual) / (PITCH * Math.max(rows.length, 1));
    const unit = this.px * Math.min(UNIT.most, Math.max(UNIT.least, fitting));
    const { painter } = this;
    const width = this.lanes.clientWidth / unit;
    painter.begin(width, height / unit, unit, theme);
    const left = width * COLUMNS.plot;
    const right = width * COLUMNS.words - 14;
    const axis = stepAxis({ first: model.firstStep, last: model.firstStep + STEPS - 1 });
    const end = Math.max(step, model.firstStep + STEPS - 1);
    const scale = timeScale({ from: end - STEPS + 1, to: end + 1 }, left, right, axis);
    const lanes = rows.map((row, at) => ({ row, span: newest(row), base: (at + 1) * PITCH - 4 }));
    const bottom = rows.length * PITCH;
    const scene = { scale, step, model, frame, width, left, right };
    cursorBand(painter, scene, 0, bottom);
    for (const lane of lanes) drawRow(painter, scene, lane, width * COLUMNS.state);
    for (const preemption of frame.story.preemptions)
      drawHandover(painter, scene, lanes, preemption);
    cursorLines(painter, scene, 0, bottom);
    drawAxis(painter, scale, bottom);
    if (hidden)
      painter.text(`and ${hidden} more`, 0, bottom + 14, { ...STATE, color: theme.muted });
    const words = rows.map((row) => `${row.name}: ${frame.phase(newest(row).id).words}`);
    this.canvas.setAttribute("aria-label", `${plural(rows.length, "lane")}. ${words.join(", ")}`);
    this.host.dataset.lanes = String(rows.length);
    this.host.dataset.hidden = String(hidden);
  }

  #key(event: KeyboardEvent) {
    if (!this.live?.shows || event.ctrlKey || event.metaKey) return;
    const { board } = this.live;
    const by = { ",": -1, ArrowLeft: -1, ".": 1, ArrowRight: 1 }[event.key];
    if (by) board.goTo(board.store.step + by);
    else if (event.key === "Home") board.goTo(board.model.firstStep);
    else if (event.key === "v")
      this.showLevel(LEVELS[(LEVELS.indexOf(this.level) + 1) % LEVELS.length]);
    else if (event.key === "End" || event.key === "n") this.live.follow(true);
    else return;
    event.preventDefault();
  }
}

/** One person's row: name, state, the requests in view, and the last words. */
function drawRow(painter: CanvasPainter, scene: any, { row, span, base }: Lane, stateAt: number) {
  const { scale, step, model, frame, left, right, width } = scene;
  const { theme } = painter;
  const { kind, words } = frame.phase(span.id);
  painter.line(left, base, scale.end(step), base, theme.rule);
  painter.mark(0, base - 11, 12, 12, model.laneOf(span.id, step));
  painter.text(painter.cutName(row.name, stateAt - 22, NAME), 17, base, NAME);
  const isLost = kind === "preempted";
  const style = { ...STATE, bold: isLost, color: isLost ? theme.ink : theme.muted };
  painter.text(kind === "finished" ? "idle" : words, stateAt, base, style);
  painter.clipped(left, base - PITCH + 2, scale.end(step) - left + 3, PITCH, () => {
    row.spans.forEach((one, at) => {
      const from = one.arrived ?? model.firstStep;
      const to = Math.max(from, one.finished?.step ?? model.lastStep);
      if (to < scale.first || from > step) return;
      drawWaits(painter, scale, one, base, model.lastStep);
      const stay = { index: one.index, lane: 0, from, to };
      const next = row.spans[at + 1];
      const stays = next ? [stay, { from: next.arrived }] : [stay];
      const inRow = {
        ...scene,
        narrow: true,
        laneHeight: PITCH,
        packing: { lanes: [stays] },
        end: right,
      };
      drawLife(painter, inRow, stay, base); // the words in it are left out: the name is at the left
    });
  });
  const said = outputAt(span, step).replace(/\s+/g, " ").trim();
  const color = kind === "finished" ? theme.muted : theme.ink;
  painter.text(tail(painter, said, width - right - 16), right + 14, base, { ...WORDS, color });
}

/** Returns the last words of a text that fit. */
function tail(painter: CanvasPainter, text: string, room: number) {
  if (painter.measure(text, WORDS) <= room) return text;
  const letter = painter.measure("m", WORDS);
  const last = text.slice(-Math.max(1, Math.floor(room / letter) - 2));
  const word = last.indexOf(" ");
  return `… ${word >= 0 && word < last.length - 1 ? last.slice(word + 1) : last}`;
}

/** An arrow from the victim's row to the row that needs its blocks. */
function drawHandover(
  painter: CanvasPainter,
  { scale, step }: { scale: Scale; step: number },
  lanes: Lane[],
  { request, by }: { request: number; by: number },
) {
  const rowOf = (id: number) => lanes.find(({ row }) => row.spans.some((span) => span.id === id));
  const [from, to] = [rowOf(request), rowOf(by)];
  if (!from || !to || from === to) return;
  const x = scale.middle(step);
  const up = to.base < from.base;
  const tip = up ? to.base + 1 : to.base - PITCH + 6;
  painter.line(x, from.base - 6, x, up ? tip + 5 : tip - 5, painter.theme.ink, 1.6);
  painter.tip(x, tip, up ? "up" : "down", painter.theme.ink, 7);
}

function drawAxis(painter: CanvasPainter, scale: ReturnType<typeof timeScale>, bottom: number) {
  const color = painter.theme.muted;
  const ticks = axisTicks(scale, 90).filter((step) => scale.middle(step) > scale.left);
  ticks.forEach((step, at) =>
    painter.text(`${at ? "" : "step "}${step}`, scale.middle(step), bottom + 14, {
      ...STATE,
      color,
      align: "center",
    }),
  );
}

/** A grid of plain cells, about 3 to 2, that fills the width and is at most `height` high. */
function cellGrid(count: number, width: number, height: number) {
  let columns = 8;
  const bodyOf = (cells: number) => Math.min(26, (width / cells) * 0.66);
  while (Math.ceil(count / columns) * bodyOf(columns) > height && columns < count) columns += 1;
  const pitchX = width / columns;
  const pitchY = bodyOf(columns);
  const gap = pitchX > 24 ? 5 : pitchX > 9 ? 2 : pitchX > 4 ? 1 : 0;
  return {
    count,
    rest: 0,
    columns,
    rows: Math.ceil(count / columns),
    left: 0,
    label: 0,
    body: pitchY - gap,
    gapX: gap,
    gapY: gap,
    cellWidth: pitchX - gap,
    cellHeight: pitchY - gap,
    height: Math.ceil(count / columns) * pitchY,
    x: (block: number) => (block % columns) * pitchX,
    y: (block: number) => Math.floor(block / columns) * pitchY,
    at: () => -1,
  };
}
