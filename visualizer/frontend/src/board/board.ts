/**
 * The board: the panels of one log, their layout and the user's actions on them.
 *
 * Every action changes the view's store. The store notifies the boards of the view, which are redrawn at most
 * once per animation frame. `render` draws and writes everything for one step, so that all panels, numbers and
 * words show the same step. Attributes on the root state what is shown, for tests and for embedding pages.
 */

import { closest, focused, h, setAttribute, tell } from "../drawing/html.ts";
import type { WordContext } from "../drawing/words_html.ts";
import { pythonFor } from "../host/address.ts";
import type { Frame } from "../model/frame.ts";
import { Absent } from "../model/indexed_events.ts";
import { type Fact, missing } from "../model/knowledge.ts";
import type { Model } from "../model/model.ts";
import { momentsAround } from "../model/moments.ts";
import type { Level } from "../model/sentence.ts";
import { DecisionsPanel } from "../panels/decisions.ts";
import { ExpertsPanel } from "../panels/experts_panel.ts";
import { HandoverOverlay } from "../panels/handover_overlay.ts";
import { writeKnowledge } from "../panels/knowledge_panel.ts";
import { MapPanel } from "../panels/map_panel.ts";
import { MomentsBox } from "../panels/moments_box.ts";
import type { Painted } from "../panels/painted.ts";
import { QueuePanel } from "../panels/queue_panel.ts";
import { type RunInWords, RunPanel } from "../panels/run_panel.ts";
import { SeatsRow } from "../panels/seats_row.ts";
import { SentencePanel } from "../panels/sentence_panel.ts";
import { SummaryPanel } from "../panels/summary_panel.ts";
import { emptyTables, writeTables } from "../panels/tables.ts";
import { TimePanel } from "../panels/time_panel.ts";
import { TokensPanel } from "../panels/tokens.ts";
import { TreePanel } from "../panels/tree_panel.ts";
import { WaterfallPanel } from "../panels/waterfall_panel.ts";
import { openTour, type Tell } from "../tour/open_tour.ts";
import type { Scene } from "../tour/scenes.ts";
import { actionsOf } from "./actions.ts";
import { boardFoot, buildControls, StepSlider } from "./controls.ts";
import { Focus } from "./focus.ts";
import { bindKeys, boardKeys, buildHelp } from "./keys.ts";
import { hasPanel, LevelControl, levelNamed } from "./levels.ts";
import { LinkBox } from "./link_box.ts";
import type { PostcardBox } from "./postcard_box.ts";
import { prepareForPrint } from "./printing.ts";
import { SearchBox } from "./search_box.ts";
import type { Seat } from "./seat.ts";
import { type About, aboutNodes, Shell, type ShellOptions } from "./shell.ts";
import type { Project } from "./sources.ts";
import type { ViewState, ViewStore } from "./store.ts";
import { nameTerms, TermCard } from "./terms.ts";
import { AXES, type Opening, View } from "./view.ts";

export interface Panel {
  element: HTMLElement;
  /** What it shows besides the step: it is drawn again only if one of these has changed. */
  reads?: (keyof ViewState)[];
  alternative?: HTMLElement; // where its tables are
  setModel?: (model: Model) => void;
  layout?: () => void; // for a new width
  draw?: () => void; // its canvases
  write: () => void; // its text
  /** Paints its text instead, unless it returns false. */
  paint?: () => unknown;
  painted?: Painted[];
  writeLabels?: () => void; // what is written in every step: labels of canvases, what the reader has asked for
  tables?: () => HTMLElement[];
}

/** What a panel of one engine reads and changes: a board, or a replica's part of a cluster's board. */
export interface PanelBoard
  extends Pick<Board, "model" | "frame" | "theme" | "unit" | "narrow" | "signal" | "tooltip"> {
  readonly store: Pick<ViewState, "step" | "selected" | "block" | "touched">;
  select(id: number | null): void;
  lookAt(block: number | null): void;
}

export type PanelName = keyof typeof PANELS;

type Parts = { [K in PanelName]?: InstanceType<(typeof PANELS)[K]> };

export type BoardState = Required<Pick<ViewState, "step" | "selected" | "range" | "axis" | "slo">> &
  Pick<Opening, "window"> & { only: PanelName | null; level?: Level };

export type BoardContext = WordContext & { model: Model; frame: Frame; block: number | null };

export interface BoardOptions extends ShellOptions {
  view?: View; // shared with other boards of the log
  panel?: string; // the only panel
  level?: string; // how much it shows until the reader chooses
  onChange?: (state: BoardState) => void; // called after every change
  linkOf?: (state: BoardState) => string; // a link to a state
  project?: Project | null;
  about?: About;
  run?: RunInWords | null; // what limited it
  trace?: () => Promise<Uint8Array>; // the bytes of a trace for Perfetto
  seat?: Seat; // Python that runs the log again
  tell?: Tell; // the scenes of its tour, if they do not come with `run`
}

const PANELS = {
  timeline: TimePanel,
  blocks: MapPanel,
  tree: TreePanel,
  scheduler: DecisionsPanel,
  tokens: TokensPanel,
  experts: ExpertsPanel, // of a log that has expert loads
  waterfall: WaterfallPanel, // not among the others, but in their place
};
/** A panel whose fact is unknown says so instead of drawing. */
const NEEDS: Partial<Record<PanelName, [title: string, ...facts: Fact[]]>> = {
  blocks: ["KV blocks", "block_tables"],
  tree: ["Prefix tree", "prefix_tree"],
  scheduler: ["Decisions, in order", "scheduled_tokens", "admissions"],
  waterfall: ["Where the time went", "arrivals"],
  experts: ["Experts"],
};
const NO_EXPERTS = "This log has no expert loads: its model is not a mixture of experts.";
const NAMES = Object.keys(PANELS) as PanelName[];
const panelNamed = (name: string | null | undefined) => NAMES.find((one) => one === name) ?? null;
const FAR_WALL = [
  [1800, 2],
  [1100, 1.5],
];
const IDLE = 120; // ms without a change before words that were painted are written
const MANY = 40; // running requests: their rows are painted first

export class Board extends Shell {
  /** Whether it follows a running engine. */
  isLive = false;
  /** Whether it changes several times a second. */
  isBusy = false;
  /** Shows another log. */
  reload: ((log: ArrayBufferView) => unknown) | undefined;
  view: View;
  linkOf: (state: BoardState) => string;
  project: Project | null;
  about: About | undefined;
  trace: (() => Promise<Uint8Array>) | undefined;
  seat: Seat | undefined;
  tell: Tell | undefined;
  store: ViewStore;
  onChange: (state: BoardState) => void;
  panel: PanelName | null;
  only: PanelName | null;
  /** Whether the reader has chosen one panel. */
  isProjected = false;
  /** Whether it stands in a document, such as a notebook, and has no address of its own. */
  isInDocument: boolean;
  level: Level;
  /** The level until the reader chooses. */
  opensAt: Level;
  levels = new LevelControl((level) => this.showLevel(level));
  model!: Model;
  lead!: SentencePanel;
  run: RunPanel;
  /** Those that the board has. */
  parts!: Parts;
  panels!: Panel[];
  time?: TimePanel;
  controls!: ReturnType<typeof buildControls>;
  slider!: StepSlider;
  bar!: HTMLElement;
  search!: SearchBox;
  link!: LinkBox;
  postcard?: PostcardBox; // see `openPostcard`
  focus!: Focus;
  seats!: SeatsRow;
  card!: TermCard;
  queue!: QueuePanel;
  handover!: HandoverOverlay;
  grid!: HTMLElement;
  knowledge!: HTMLElement;
  summary!: SummaryPanel;
  showsTables?: boolean;
  /** CSS pixels per board pixel. */
  unit!: number;
  shown!: Panel[];
  frame!: Frame;
  idleTimer?: number;
  /** Whether steps follow each other so quickly that their words are painted, not written. */
  isMoving = false;
  movedAt = -Infinity;
  /** The panels whose elements have the words of another step. */
  stale: Set<Panel> = new Set();
  /** What each panel has drawn last. */
  drawn: Map<Panel, unknown[]> = new Map();

  /** Builds an empty board in `host`. */
  constructor(host: Element, options: BoardOptions) {
    const { view = new View(), project = null, onChange = () => {} } = options;
    super(host, options, { label: "Board", tabindex: "0" });
    this.view = view;
    this.isInDocument = !options.linkOf;
    this.linkOf = options.linkOf ?? pythonFor;
    this.project = project;
    this.about = options.about;
    this.run = new RunPanel(this);
    this.run.show(options.run);
    this.trace = options.trace;
    this.seat = options.seat;
    this.tell = options.tell;
    this.store = view.store;
    this.onChange = onChange;
    this.panel = this.only = panelNamed(options.panel);
    this.level = this.opensAt = levelNamed(options.level) ?? "all";
    view.join(this, this.signal);
  }

  /** Shows a model. */
  open(model: Model, opening: Opening = {}) {
    this.message?.remove();
    if (this.model !== model) this.run.ends.abort();
    this.model = model;
    if (this.view.model !== model) this.view.open(model, opening);
    if (!this.grid) this.build();
    this.summary.setModel(model);
    if (this.knowledge) writeKnowledge(this.knowledge, model);
    for (const panel of this.panels) panel.setModel?.(model);
    if (!this.panel) this.only = panelNamed(opening.only) ?? this.only;
    this.level = levelNamed(opening.level) ?? this.level;
    this.time?.refit();
    this.layout();
    if (opening.window) this.axis?.lookAt(opening.window);
  }

  /** Updates the board after the model has grown. */
  grow() {
    this.summary.setModel(this.model);
    if (this.knowledge?.hidden) writeKnowledge(this.knowledge, this.model);
    for (const panel of this.panels) panel.setModel?.(this.model);
    this.layout();
  }

  build() {
    const { signal, root, store, panel: alone } = this;
    this.parts = Object.fromEntries(
      NAMES.filter((name) => !alone || name === alone).map((name) => [
        name,
        new PANELS[name](this),
      ]),
    );
    this.panels = Object.values(this.parts);
    this.time = this.parts.timeline;
    const actions = actionsOf(this, NAMES);
    this.controls = buildControls(actions);
    this.slider = new StepSlider((step) => this.goTo(step));
    this.bar = h("div.bar.line", { hidden: true }, this.slider.element);
    this.help = buildHelp(() => this.toggleHelp());
    this.search = new SearchBox(this);
    this.link = new LinkBox(this);
    this.focus = new Focus(root);
    this.seats = new SeatsRow(this);
    this.queue = new QueuePanel(this);
    this.handover = new HandoverOverlay(this);
    const column = (name: string, ...names: PanelName[]) =>
      h("div", { class: `column stack ${name}` }, ...names.map((one) => this.parts[one]?.element));
    const right = column("right", "blocks", "scheduler");
    this.grid = h("div.grid", column("left", "timeline", "tree"), right);
    const { tokens, experts, waterfall } = this.parts;
    for (const panel of [tokens, experts, waterfall]) if (panel) this.grid.append(panel.element);
    this.knowledge = h("section.knowledge", { "aria-label": "What this log knows" });
    const boxes = [this.search.element, this.link.element, this.help];
    const [title, ...caption] = aboutNodes(this.about);
    const heading = alone ? [] : [h("div.top.line", title, this.levels.element), ...caption];
    this.lead = new SentencePanel(this, new MomentsBox(actions.moment));
    this.summary = new SummaryPanel((slo) => store.set({ slo }));
    boxes.push(this.summary.box);
    const summary = alone ? [] : [this.summary.element];
    if (!alone) this.time?.strip.after(this.run.bar);
    const run = alone ? [] : [this.run.sentence.element];
    root.append(
      ...heading,
      ...summary,
      ...run,
      this.search.walk,
      this.lead.element,
      this.bar,
      this.grid,
      ...boxes,
    );
    if (!alone) root.append(this.knowledge, boardFoot(actions));
    this.card = new TermCard(this);
    nameTerms(this.seats.element.querySelector("h2"), "seat");
    if (!alone) {
      nameTerms(this.parts.blocks?.element.querySelector("h2") ?? null, "KV block");
      nameTerms(this.parts.tree?.element.querySelector("h2") ?? null, "radix tree");
    }
    bindKeys(root, boardKeys(actions));
    prepareForPrint(this);
    for (const name of ["pointerdown", "keydown"])
      root.addEventListener(
        name,
        (event) => (event as KeyboardEvent).key !== "Tab" && store.set({ touched: true }),
        { signal, capture: true },
      );
    store.listen((names) => this.changed(names), signal);
    signal.addEventListener("abort", () => clearTimeout(this.idleTimer));
  }

  get showsSeats() {
    const { blocks } = this.parts;
    return !this.panel && !!blocks && (this.shownLevel === "lanes" || !blocks.element.hidden);
  }

  /** The level of what is shown: one panel alone has all of it. */
  get shownLevel(): Level {
    return this.only ? "all" : this.level;
  }

  /** The timeline, while it is shown. */
  get axis() {
    const { time, shown } = this;
    return time && shown?.includes(time) ? time : null;
  }

  // Actions

  goTo(step: number) {
    this.view.goTo(step);
  }

  select(id: number | null) {
    this.store.set({ selected: id });
  }

  /** Highlights a block. */
  lookAt(block: number | null) {
    this.store.set({ block });
  }

  brush(from: number | null, to?: number) {
    this.view.brush(from, to);
  }

  /** Shows what limited the run, once that is known or known anew. */
  showRun(run: RunInWords | null) {
    this.run.show(run);
    if (this.model) this.layout();
  }

  /** Tells what happened, scene by scene, about the log as it is now. */
  tellMe() {
    const { model } = this;
    this.view.play(false);
    const host = {
      title: this.about?.title ?? "",
      theme: () => this.theme,
      modelOf: () => model,
      leave: ({ step, requests }: Scene) => {
        if (step !== null) this.goTo(step);
        if (requests.length) this.select(requests[0]);
      },
    };
    return openTour(this, host, this.run.run?.tour, this.tell);
  }

  /** Opens or closes the list of waiting requests. */
  toggleQueue() {
    this.store.set({ queue: !this.store.queue });
  }

  toggleTables() {
    this.showsTables = this.root.toggleAttribute("data-tables");
    const tables: NodeListOf<HTMLElement> = this.root.querySelectorAll(".alternative");
    for (const table of tables) table.tabIndex = this.showsTables ? 0 : -1;
    if (this.showsTables) writeTables(this.shown);
  }

  /** Shows one panel alone, for projection, or all of them again. */
  showOnly(name: PanelName | null) {
    if (this.panel) return;
    this.only = name;
    this.isProjected = true;
    this.layout();
    this.onChange(this.state());
  }

  /** Shows less or more. */
  showLevel(level: Level) {
    if (this.panel || level === this.level) return;
    this.level = level;
    this.layout();
    this.onChange(this.state());
  }

  clicked(event: Event) {
    const named = closest(event, "[data-request]");
    if (named) this.select(Number(named.dataset.request));
  }

  /** The state of the view, from which `restore` can return to it. */
  state(): BoardState {
    const { step, selected, range, axis, slo } = this.store;
    const window = this.axis?.long ? this.axis.window : undefined;
    const only = this.panel ? null : this.only;
    const isUsual = this.panel || (this.level === "all" && this.opensAt === "all");
    return {
      step,
      selected,
      range,
      window,
      axis,
      slo,
      only,
      level: isUsual ? undefined : this.level,
    };
  }

  /** Restores a state; fields that it does not have stay as they are. */
  restore({
    step,
    selected,
    block,
    range,
    window,
    axis,
    slo,
    only,
    level,
  }: Opening & { block?: number | null }) {
    const values: Partial<ViewState> = {};
    if (slo) values.slo = slo;
    if (axis && AXES.includes(axis) && axis !== this.store.axis) {
      this.store.set({ axis });
      this.axis?.changeAxis(); // before the window, which depends on the axis
    }
    if (step != null) values.step = this.view.clamp(step);
    if (selected !== undefined) values.selected = this.model.request(selected) ? selected : null;
    if (block !== undefined) values.block = block;
    if (range !== undefined)
      values.range = range && [this.view.clamp(range[0]), this.view.clamp(range[1])];
    this.view.show(values);
    if (only !== undefined && only !== this.only) this.showOnly(panelNamed(only));
    if (level) this.showLevel(levelNamed(level) ?? this.level);
    if (window) this.axis?.lookAt(window);
  }

  // Drawing

  changed(names: Set<string>) {
    if (this.laidOutFor) this.whenRead(() => this.showChanged((name) => names.has(name)));
  }

  /** Shows what has changed, the names of which `has` knows. */
  showChanged(has: (name: string) => boolean) {
    if (has("axis")) this.time?.changeAxis();
    if (has("pinned") && this.time) {
      this.time.pack();
      this.time.layout();
      this.render();
    }
    if (has("step")) {
      this.noticeMove();
      this.axis?.revealCursor();
    }
    if (has("selected")) this.axis?.revealSelected();
    const moved = ["step", "selected", "block", "touched", "queue"].some(has);
    const ranged = ["range", "window", "axis"].some(has);
    const stopped = has("playing") && !this.store.playing;
    if (moved || stopped) this.render(this.due());
    else if (ranged || has("scrolled")) {
      this.axis?.draw();
      if (this.axis) this.queue.draw();
      this.axis?.writeShown();
    }
    if (has("range")) this.axis?.writeRange();
    if (has("slo")) this.render();
    this.showControls();
    if (has("slo") || moved || ranged) this.onChange(this.state());
  }

  /** Tells whether words are written or painted. */
  noticeMove() {
    const now = performance.now();
    const isMany = this.model.frame(this.store.step).running.length > MANY;
    this.isMoving = !this.isLive && (this.store.playing || now - this.movedAt < IDLE || isMany);
    this.movedAt = now;
  }

  /**
   * Fits the board to its width: one column when narrow. A board in a hidden tab has no width and is laid out
   * when it gets one.
   */
  layout() {
    if (this.model && this.root.clientWidth && !this.isTold) this.whenRead(() => this.fit());
  }

  /** Fits the board that has a model and a width. */
  fit() {
    const width = this.root.clientWidth;
    const { root, only, parts } = this;
    this.laidOutFor = width;
    // A panel that a document shows is as large as its text; one that the reader chooses is for a projector.
    const isFar = this.isProjected || !this.isInDocument;
    const far = FAR_WALL.find(
      ([from]) => isFar && only && only !== "waterfall" && !this.panel && width >= from,
    );
    this.unit = far?.[1] ?? 1;
    this.narrow = this.isNarrow(this.unit);
    root.dataset.layout = this.narrow ? "narrow" : this.unit > 1 ? "projector" : "wide";
    const level = this.shownLevel;
    root.dataset.only = only ?? "";
    root.dataset.level = level;
    this.levels.show(level);
    this.levels.element.hidden = !!only;
    root.style.setProperty("--px", `${this.unit}px`);
    for (const [name, { element }] of Object.entries(parts))
      element.hidden =
        name !== only &&
        (!!only ||
          !hasPanel(level, name as PanelName) ||
          name === "waterfall" ||
          (name === "experts" && !this.model.expertLoads.length));
    if (level === "lanes") parts.timeline?.element.after(this.seats.element);
    else if (!this.panel) parts.blocks?.element.prepend(this.seats.element);
    this.summary.element.hidden = !!only && only !== "waterfall";
    this.shown = this.panels.filter(({ element }) => !element.hidden);
    for (const name of NAMES) this.tellMissing(name);
    this.bar.hidden = !!this.axis;
    (this.axis?.element ?? this.bar).prepend(...this.controls.elements);
    for (const panel of this.shown) panel.layout?.();
    if (this.showsSeats) this.seats.layout();
    this.axis?.revealSelected();
    if (this.time) this.queue.layout(parts.tree?.element, this.time.element);
    this.render();
    root.dataset.ready = "true";
  }

  /** Writes into a panel what the log lacks, if it does, in place of its picture. */
  tellMissing(name: PanelName) {
    const panel = this.parts[name];
    const [title = "", ...facts] = NEEDS[name] ?? [];
    const isDense = name === "experts" && !this.model.expertLoads.length;
    const words = isDense ? NO_EXPERTS : missing(this.model, ...facts);
    panel?.element.querySelector(".lacks")?.remove();
    panel?.element.toggleAttribute("data-lacks", !!words);
    if (!panel || !words) return;
    this.shown = this.shown.filter((one) => one !== panel);
    panel.element.append(h("div.lacks", h("h2", title), h("p.note.muted", words)));
  }

  context(): BoardContext {
    const { model, frame, theme, store } = this;
    return { model, frame, theme, selected: store.selected, block: store.block };
  }

  /** The panels that show something else than what they would draw now. */
  due() {
    this.frame = this.model.frame(this.store.step);
    return this.shown.filter((panel) => {
      const before = this.drawn.get(panel);
      return this.readBy(panel).some((value, i) => value !== before?.[i]);
    });
  }

  readBy({ reads = [] }: Panel) {
    return [this.frame, this.model.events.length, ...reads.map((name) => this.store[name])];
  }

  /** Draws and writes the step; of the panels only `panels`. */
  render(panels = this.shown) {
    this.whenRead(() => this.drawStep(panels));
  }

  /** Draws; again, once what is absent has been read. */
  whenRead(draw: () => void) {
    try {
      draw();
    } catch (error) {
      Absent.fetch(error, () => this.signal.aborted || this.whenRead(draw));
    }
  }

  drawStep(panels: Panel[]) {
    const { model, store } = this;
    this.frame = model.frame(store.step);
    this.focus.keep();
    // Canvases first: after the DOM has changed, setting a canvas's font makes the browser recalculate styles.
    for (const panel of panels) panel.draw?.();
    if (this.showsSeats) this.seats.draw();
    if (this.axis) this.queue.draw();
    this.write(panels);
    this.focus.restore();
    this.label();
    this.showControls();
    this.handover.follow();
  }

  /** Writes all text for the step that has just been drawn. */
  write(panels: Panel[]) {
    this.tooltip.update(); // before the DOM changes, because it reads the layout
    this.writeSummary();
    this.writeWords([this.lead, ...(this.showsSeats ? [this.seats] : []), ...panels]);
    if (this.card.isOpen) this.card.update();
    if (this.showsTables) writeTables(this.shown);
    else emptyTables(this.shown);
    clearTimeout(this.idleTimer);
    this.idleTimer = setTimeout(() => this.rest(), IDLE);
  }

  /** Writes the words of panels or, while steps follow each other quickly, paints them. */
  writeWords(panels: Panel[]) {
    const active = this.isMoving ? focused(this.root) : null;
    const isFree = ({ painted }: Panel) => !painted?.some((one) => one.isUsed(active));
    // First what is painted: after the DOM has changed, a text on a canvas makes the browser compute styles.
    const paints = this.isMoving ? panels.filter((one) => one.paint && isFree(one)) : [];
    const fine = new Set(paints.filter((panel) => panel.paint?.() !== false));
    for (const panel of panels) {
      const isPainted = fine.has(panel);
      for (const one of panel.painted ?? []) one.show(isPainted);
      if (isPainted) this.stale.add(panel);
      else {
        this.stale.delete(panel);
        panel.write();
      }
      panel.writeLabels?.();
      tell(panel.element, { step: this.frame.step });
      this.drawn.set(panel, this.readBy(panel));
    }
    tell(this.root, { moving: this.stale.size > 0 });
  }

  /** States on the root what is shown. */
  label() {
    const { model, store, frame, root } = this;
    const { here, count } = momentsAround(model, store.step);
    setAttribute(
      root,
      "aria-label",
      `${this.panel ?? "Board"}: ${model.requests.length} requests, steps ${model.firstStep} to ${model.lastStep}`,
    );
    tell(root, {
      step: store.step,
      steps: model.lastStep,
      requests: model.requests.length,
      selected: store.selected ?? "",
      block: store.block ?? "",
      running: frame.running.length,
      waiting: frame.waitingCount,
      tokens: frame.budget.tokens,
      touched: store.touched,
      moment: here?.kind ?? "",
      moments: count,
      ...frame.counts,
    });
  }

  writeSummary() {
    if (!this.panel) this.summary.write(this.store, this.theme, this.view.lastOfLog);
  }

  /** Writes what is left out while the cursor moves: tables, and the words that have been painted. */
  rest() {
    if (this.store.playing) return;
    this.isMoving = false;
    this.writeWords([...this.stale]);
    if (!this.showsTables) this.whenRead(() => writeTables(this.shown));
  }

  /**
   * Updates the buttons, and whether screen readers announce the sentence: not while it changes several times
   * a second, and not by several panels at once.
   */
  showControls() {
    const { step, playing, speed } = this.store;
    const { firstStep: first, lastStep: last } = this.model;
    this.controls.show({ step, first, last, playing, speed });
    if (!this.bar.hidden) this.slider.show({ step, first, last });
    const speaks = !this.panel || this.root.contains(focused(this.root));
    const isSilent = playing || this.isBusy || !speaks;
    setAttribute(this.lead.sentence, "aria-live", isSilent ? "off" : "polite");
    const axis = this.time?.timeAxis.kind ?? this.store.axis;
    tell(this.root, { playing, axis, range: this.store.range?.join("-") ?? "" });
  }
}
