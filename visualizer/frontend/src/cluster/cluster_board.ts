/**
 * The board of a cluster: the router, the lanes of each replica on one wall-time axis, the selected decision, and the
 * replicas' prefix trees and KV blocks side by side.
 *
 * Every action changes `state`; the next animation frame draws all panels for it. The panels of one replica are those of
 * a single board; `replica_board.ts` gives them its model and frame.
 */

import { Board, type Panel } from "../board/board.ts";
import { LevelControl, levelNamed } from "../board/levels.ts";
import { patchChildren } from "../board/patch_children.ts";
import type { Seat } from "../board/seat.ts";
import { type About, aboutNodes, Shell, type ShellOptions } from "../board/shell.ts";
import { Store } from "../board/store.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { closest, h, listen, onWheel, plural, pointIn } from "../drawing/html.ts";
import { markOf } from "../drawing/marks.ts";
import {
  type Axis,
  clampView,
  panView,
  timeScale,
  type View,
  wholeView,
  zoomView,
} from "../drawing/time_axis.ts";
import { BLEED, drawAxis } from "../drawing/timeline.ts";
import { chip, type WordContext, wordNodes } from "../drawing/words_html.ts";
import { duration } from "../model/duration.ts";
import { LEVELS, type Level } from "../model/sentence.ts";
import { RunSentence } from "../panels/run_panel.ts";
import { runCells } from "../panels/summary_panel.ts";
import { openTour, type Tell } from "../tour/open_tour.ts";
import type { Scene } from "../tour/scenes.ts";
import css from "./cluster.css";
import { clusterFacts, predictedHit } from "./cluster_facts.ts";
import { buildClusterKeys } from "./cluster_keys.ts";
import type { ClusterModel, ClusterRequest, Route } from "./cluster_model.ts";
import { openingRoute } from "./cluster_moments.ts";
import { writeClusterSummary } from "./cluster_summary.ts";
import { clusterSentence, continuationOf, presenceWords } from "./cluster_words.ts";
import { AgreementPanel, DecisionPanel, FormsPanel } from "./decision_panel.ts";
import { PathOverlay } from "./path_overlay.ts";
import type { Replica } from "./replica.ts";
import { ReplicaBoard } from "./replica_board.ts";
import { ReplicaGroup } from "./replica_group.ts";
import { ReplicaMap } from "./replica_map.ts";
import { ReplicaTree } from "./replica_tree.ts";
import {
  type Arrival,
  arrivalAt,
  arrivals,
  drawRouter,
  ROUTER_TOP,
  routerPitch,
  rowLine,
} from "./router_lanes.ts";

interface ClusterState {
  at: number; // the cursor (us)
  route: number | null; // index of the selected decision
  view: View; // the visible part of the axis (us)
  touched: boolean; // whether the reader has moved; before that, nothing is faded
  playing: boolean;
}

/** selected: a request's id */
export type ClusterOpening = { at?: number; selected?: number | null };

const MOST = 8; // replicas that are drawn
const GUTTER = { wide: 108, narrow: 78 };
const AXIS_HEIGHT = 22;
const SLOP = 4; // px that a pointer may move during a click
const PITCHES = [22, 17, 13];
/** px that all lanes together should not exceed */
const ROOM: Record<Level, number> = { lanes: 170, memory: 420, all: 420 };
const CROWD = 72; // lanes visible at once, of all replicas together

export interface ClusterBoardOptions extends ShellOptions {
  about?: About | null;
  run?: { sentence: string; tour?: Scene[] } | null; // what limited it
  level?: string; // how much it shows until the reader chooses
  seatOf?: (replica: string) => Seat; // Python that runs a replica's log again
  tell?: Tell; // the scenes of its tour, if they do not come with `run`
  onChange?: (state: { at: number; selected: number | null; level: Level }) => void;
}

export class ClusterBoard extends Shell {
  groups: ReplicaGroup[] = [];
  shown: Replica[] = [];
  /** The replicas' trees and maps. */
  sides: (Panel & { board: ReplicaBoard })[] = [];
  /** What stands in their place while a replica is not there, or has done nothing. */
  absences: HTMLElement[] = [];
  /** The time of the run. */
  extent: View = { from: 0, to: 1 };
  width = 0;
  left = 0;
  right = 0;
  bottom = 0;
  arrivals: Arrival[] = [];
  /** Whether lanes have to be laid out again. */
  #stale = true;
  level: Level;
  levels = new LevelControl((level) => this.showLevel(level));
  onChange: NonNullable<ClusterBoardOptions["onChange"]>;
  state = new Store<ClusterState>({
    at: 0,
    route: null,
    view: { from: 0, to: 1 },
    touched: false,
    playing: false,
  }) as Store<ClusterState> & ClusterState;
  model!: ClusterModel;
  sentence = h("p.sentence");
  run = new RunSentence(() => this.tellMe());
  scenes: Scene[] | undefined;
  tell: Tell | undefined;
  seatOf: ClusterBoardOptions["seatOf"];
  summary = runCells();
  router = h("canvas", { role: "img" });
  routerPainter = new CanvasPainter(this.router);
  folded = h("p.folded.small.muted");
  axisCanvas = h("canvas.axis", { "aria-hidden": "true" });
  axisPainter = new CanvasPainter(this.axisCanvas);
  path = new PathOverlay(this);
  lanes = h("div.groups");
  picture = h(
    "div.picture",
    { role: "group", "aria-label": "Router and lanes" },
    this.router,
    this.folded,
    this.lanes,
    this.axisCanvas,
    this.path.canvas,
  );
  decision = new DecisionPanel(this);
  agreement = new AgreementPanel(this);
  forms = new FormsPanel(this);
  replicas = h("div.replicas");
  one = h("div.one", { hidden: true });
  all: HTMLElement;
  foot: HTMLElement;

  constructor(host: Element, options: ClusterBoardOptions) {
    super(host, options, { name: ".cluster", label: "Cluster", css, tabindex: "0" });
    this.onChange = options.onChange ?? (() => {});
    this.showRun(options.run);
    this.tell = options.tell;
    this.seatOf = options.seatOf;
    this.level = levelNamed(options.level) ?? "all";
    const [title, ...caption] = aboutNodes(options.about);
    const right = [this.decision, this.agreement, this.forms].map(({ element }) => element);
    this.all = h(
      "div.all",
      h("div.top.line", title, this.levels.element),
      ...caption,
      h("div.summary", this.summary),
      this.run.element,
      this.sentence,
      h("div.two", this.picture, h("div.column.stack", ...right)),
      this.replicas,
    );
    this.foot = buildClusterKeys(this);
    this.state.listen(() => this.render(), this.signal);
    this.#listen();
  }

  /** The selected decision. */
  get route(): Route | null {
    return this.model?.routes[this.state.route as number] ?? null;
  }

  get selected(): ClusterRequest | null {
    return this.route?.request ?? null;
  }

  /** The time axis of the whole run. */
  get axis(): Axis {
    const { from, to } = this.extent;
    const typical = Math.min(
      (to - from) / 8,
      ...this.shown.flatMap(({ runs }) => runs.flatMap(({ axis }) => axis?.typical ?? [])),
    );
    const same = (place: number) => place;
    return {
      kind: "time",
      from,
      to,
      typical,
      smallest: 4 * typical,
      begin: same,
      end: same,
      stepAt: same,
    };
  }

  get scale() {
    return timeScale(this.state.view, this.left, this.right, this.axis);
  }

  /** Shows a model. */
  open(model: ClusterModel, { at, selected }: ClusterOpening = {}) {
    this.message?.remove();
    this.model = model;
    this.extent = model.extent;
    const asked = model.request(selected)?.routes.at(-1);
    const route = selected === null ? null : (asked ?? openingRoute(model));
    Object.assign(this.state, {
      at: at ?? route?.at ?? this.extent.from,
      route: route?.index ?? null,
      touched: false,
      playing: false,
    });
    if (!this.all.parentNode)
      this.root.append(this.all, this.one, this.foot, this.help as HTMLElement);
    this.#choose();
    this.state.view = wholeView(this.axis);
    this.layout();
    this.root.dataset.ready = "true";
  }

  /** Updates the board after its model has grown. A view that reached the end follows it. */
  grow() {
    const { to } = this.extent;
    this.extent = this.model.extent;
    const { view } = this.state;
    const wasWhole = view.to >= to;
    if (wasWhole)
      this.state.view = clampView(
        { from: view.from <= to ? this.extent.from : view.from, to: this.extent.to },
        this.axis,
      );
    this.#choose();
    this.#stale = true;
    this.redraw();
  }

  /** Chooses the replicas to draw, by their ids: the first, and that of the selected request. */
  #choose() {
    const replicas = this.model.replicas.toSorted((a, b) =>
      a.id.localeCompare(b.id, undefined, { numeric: true }),
    );
    let shown = replicas.slice(0, MOST);
    const chosen = this.model.replica(this.route?.replica ?? "");
    if (chosen && !shown.includes(chosen)) shown = [...shown.slice(0, MOST - 1), chosen];
    if (shown.length !== this.shown.length || shown.some((one, i) => one !== this.shown[i])) {
      this.shown = shown;
      this.groups = shown.map((replica) => new ReplicaGroup(new ReplicaBoard(this, replica)));
      this.lanes.replaceChildren(...this.groups.map(({ element }) => element));
      const pairs = this.groups.map(({ board }) => [new ReplicaTree(board), new ReplicaMap(board)]);
      this.absences = this.groups.map(() => h("p.absence.muted"));
      this.replicas.replaceChildren(
        ...pairs.map((pair, i) =>
          h("div.side.stack", this.absences[i], ...pair.map(({ element }) => element)),
        ),
      );
      this.sides = pairs.flat();
      this.#stale = true;
    }
  }

  layout() {
    this.#stale = true;
    // A replica's board has a level of its own.
    this.root.dataset.level = this.showsOne ? "all" : this.level;
    this.levels.show(this.level);
    super.layout();
  }

  #layoutLanes() {
    this.#stale = false;
    const { narrow, level } = this;
    this.width = this.picture.clientWidth;
    this.left = GUTTER[narrow ? "narrow" : "wide"];
    this.right = this.width - (narrow ? 8 : 34);
    const full = this.groups.map((group) => group.pack(false));
    const sum = (rows: number[]) => rows.reduce((all, one) => all + one, 0);
    const isCrowded = level === "lanes" || sum(full) * PITCHES[1] > ROOM[level];
    const rows = isCrowded ? this.groups.map((group) => group.pack(true)) : full;
    const pitch =
      PITCHES.find((one) => sum(rows) * one <= ROOM[level]) ?? PITCHES[PITCHES.length - 1];
    const most = Math.max(4, Math.floor(CROWD / Math.max(1, rows.length)));
    let top = this.#lanesTop();
    for (const group of this.groups) {
      group.layout(top, Math.min(pitch, narrow ? 19 : pitch), most);
      top += group.height;
    }
    this.bottom = top;
    this.picture.style.setProperty("--left", `${this.left}px`);
    for (const side of this.sides) side.layout?.();
  }

  get #pitch() {
    return routerPitch(this.shown.length);
  }

  #routerHeight() {
    return ROUTER_TOP + this.shown.length * this.#pitch;
  }

  #lanesTop() {
    return this.#routerHeight() + (this.hidden.length ? 18 : 0) + 10;
  }

  /** The replicas that are not drawn. */
  get hidden() {
    return this.model.replicas.filter((replica) => !this.shown.includes(replica));
  }

  /** The line of a router's row in the picture. */
  rowY(row: number) {
    return rowLine(row, this.#pitch);
  }

  hueOf(route: Route) {
    return markOf(this.theme, this.model.laneOfRoute(route)).hue;
  }

  // Actions

  /** Shows what limited the run, once that is known. */
  showRun(run: ClusterBoardOptions["run"]) {
    this.run.show(run?.sentence);
    this.scenes = run?.tour;
  }

  /** Tells what happened, scene by scene. */
  tellMe() {
    const { model } = this;
    const runOf = ({ replica, its_run, step }: Scene) =>
      model.replica(replica)?.partWith(its_run, step);
    const host = {
      title: "a cluster",
      theme: () => this.theme,
      modelOf: (scene: Scene) => runOf(scene)?.model ?? null,
      nameOf: (id: number) => model.request(id)?.name,
      leave: (scene: Scene) => {
        const { replica, step, requests } = scene;
        const at = step !== null ? runOf(scene)?.endOf(step) : null;
        if (at != null) this.goTo(at);
        else if (!replica && requests.length) this.select(requests[0]);
      },
    };
    return openTour(this, host, this.scenes, this.tell);
  }

  /** Shows less or more: the level after this one, by default. */
  showLevel(level = LEVELS[(LEVELS.indexOf(this.level) + 1) % LEVELS.length]) {
    this.level = level;
    this.layout();
    this.#say();
  }

  /** Moves the cursor. */
  goTo(at: number) {
    const { from, to } = this.axis;
    const time = Math.min(Math.max(at, from), to);
    const { view } = this.state;
    const width = view.to - view.from;
    const isSeen = time >= view.from && time <= view.to;
    const moved = isSeen
      ? view
      : clampView({ from: time - width / 4, to: time + (3 * width) / 4 }, this.axis);
    this.state.set({ at: time, view: moved, touched: true });
    this.#say();
  }

  /** Selects a request: its last decision. */
  select(id: number | null) {
    this.selectRoute(this.model.request(id)?.routes.at(-1) ?? null);
  }

  selectRoute(route: Route | null, goesThere: boolean = false) {
    this.state.set({ route: route?.index ?? null });
    this.#choose();
    for (const group of this.groups) group.reveal();
    if (route && goesThere) this.goTo(route.at);
    else this.state.set({ touched: true });
    this.#say();
  }

  zoom(factor: number, anchor: number = this.state.at) {
    this.state.set({ view: zoomView(this.state.view, factor, anchor, this.axis) });
  }

  pan(share: number) {
    const { view } = this.state;
    this.state.set({ view: panView(view, (view.to - view.from) * share, this.axis) });
  }

  /** Shows the whole run or, if it is shown already, the selected request. */
  fit() {
    const whole = wholeView(this.axis);
    const { view } = this.state;
    const isWhole = view.from === whole.from && view.to === whole.to;
    const { route } = this;
    if (!isWhole || !route) this.state.set({ view: whole });
    else {
      const run = this.model.runOf(route);
      const finished = run?.span(route.its)?.finished;
      const end = run && finished ? run.endOf(finished.step) : NaN;
      const to = Number.isNaN(end) ? route.at + 20 * this.axis.typical : end;
      const from = Math.min(route.at, continuationOf(this.model, route)?.from ?? Infinity);
      const margin = (to - from) * 0.4;
      this.state.set({ view: clampView({ from: from - margin, to: to + margin }, this.axis) });
    }
  }

  /** Opens the whole board of a replica at the cursor, in place of the picture. */
  openReplica(replica: Replica) {
    const run = replica.runAt(this.state.at);
    if (!run?.hasSteps) return;
    const { length } = replica.engines;
    const which = length > 1 ? `, run ${replica.numberOf(run)} of ${length}` : "";
    const words = `Replica ${replica.id}${which}; its steps, times and request ids are its own`;
    const host = h("div");
    this.one.replaceChildren(
      h(
        "p.way-back.small",
        h(
          "button.back",
          { "data-act": "all-replicas", click: () => this.closeReplica() },
          "← All replicas",
        ),
        h("span.muted", words),
      ),
      host,
    );
    this.one.hidden = false;
    this.all.hidden = true;
    this.root.dataset.replica = replica.id;
    const board = new Board(host, {
      signal: this.endInside(),
      theme: this.theme.name,
      seat: run === replica.latest ? this.seatOf?.(replica.id) : undefined,
    });
    const its = new ReplicaBoard(this, replica);
    board.open(run.model, { step: its.step, selected: its.selected });
    this.layout();
    board.root.focus({ preventScroll: true });
  }

  /** Returns from the board of a replica to the picture. */
  closeReplica() {
    this.endInside();
    this.one.replaceChildren();
    this.one.hidden = true;
    this.all.hidden = false;
    this.root.dataset.replica = "";
    this.root.focus({ preventScroll: true });
    this.layout();
  }

  /** Whether one replica's board is shown. */
  get showsOne() {
    return !this.one.hidden;
  }

  #say() {
    const { state, selected, level } = this;
    this.onChange({ at: Math.round(state.at), selected: selected?.id ?? null, level });
  }

  clicked(event: Event) {
    if (this.showsOne) return;
    const named = closest(event, "[data-request]");
    const route = named && this.model.request(Number(named.dataset.request))?.routes.at(-1);
    if (route) this.selectRoute(route, true);
  }

  // Drawing

  /** Draws in the next animation frame. */
  redraw() {
    this.state.touch("picture");
  }

  render() {
    const { model, state, theme, path } = this;
    if (!model || !this.root.clientWidth || this.showsOne) return;
    if (this.#stale) this.#layoutLanes();
    const { scale, width } = this;
    const painter = this.routerPainter;
    const scene = {
      model,
      shown: this.shown,
      scale,
      pitch: this.#pitch,
      route: this.route,
      at: state.at,
      untouched: !state.touched,
    };
    painter.begin(width, this.#routerHeight(), 1, theme, BLEED);
    this.arrivals = arrivals(scene, (name) => painter.measure(name, { bold: true }));
    painter.text("Router", 0, 10, { bold: true, size: 12 });
    if (scale.left > 90) painter.text("sent to", 46, 10, { color: theme.muted });
    drawRouter(painter, scene, this.arrivals);
    for (const group of this.groups) group.draw();
    const axis = this.axisPainter;
    axis.begin(width, AXIS_HEIGHT, 1, theme, BLEED);
    const [first] = this.groups;
    if (first) drawAxis(axis, { scale, narrow: this.narrow, model: first.replica.model });
    path.draw(scale, this.bottom + 4);
    for (const side of this.sides) this.#drawSide(side);
    this.groups.forEach(({ board, replica }, i) => {
      const { [i]: absence } = this.absences;
      absence.hidden = board.isShown;
      const words = presenceWords(model, replica, state.at);
      absence.replaceChildren(h("strong", `Replica ${replica.id}`), ` ${words}`);
    });
    this.#write();
  }

  #drawSide(side: ClusterBoard["sides"][number]) {
    const { isShown, model } = side.board;
    side.element.hidden = !isShown;
    if (!isShown) return;
    side.setModel?.(model);
    side.draw?.();
    side.write();
  }

  #write() {
    const { model, state, route, root } = this;
    this.tooltip.update();
    writeClusterSummary(this.summary, model);
    patchChildren(this.sentence, wordNodes(clusterSentence(model, route), this.#words));
    for (const panel of [this.decision, this.agreement, this.forms]) panel.write();
    const { hidden } = this;
    const requests = model.routes.filter(({ replica }) => hidden.some(({ id }) => id === replica));
    this.folded.hidden = !hidden.length;
    this.folded.textContent = `${plural(hidden.length, "more replica")}, ${plural(requests.length, "decision")}`;
    this.router.setAttribute(
      "aria-label",
      `Decisions of the router: ${model.routes.length}; arrow keys up and down select them`,
    );
    const { judged, wrong } = clusterFacts(model);
    Object.assign(root.dataset, {
      at: Math.round(state.at),
      selected: this.selected?.id ?? "",
      route: state.route ?? "",
      requests: model.requests.length,
      replicas: model.replicas.length,
      shown: this.shown.map(({ id }) => id).join(" "),
      judged,
      wrong: wrong.length,
      view: `${Math.round(state.view.from)} ${Math.round(state.view.to)}`,
      touched: state.touched,
    });
    this.router.dataset.arrivals = this.arrivals
      .map(({ route: one, x }) => `${one.index}:${Math.round(x)}`)
      .join(" ");
    const [play] = (this.foot.querySelector("[data-act=play]") as HTMLElement).childNodes;
    play.nodeValue = state.playing ? "Pause" : "Play";
  }

  get #words(): WordContext {
    const { model, theme, selected } = this;
    return { model, theme, selected: selected?.id ?? null };
  }

  /** A request's name as a button. */
  chip(id: number) {
    return chip(id, this.#words);
  }

  // The pointer

  /** Moves the cursor while the pointer is dragged on a canvas. `clicked(event)` may take a click. */
  scrub(canvas: HTMLCanvasElement, clicked: (event: PointerEvent) => boolean = () => false) {
    let drag: { x: number; moved: boolean } | null = null;
    const timeOf = (event: PointerEvent) => this.scale.placeAt(pointIn(canvas, event)[0] - BLEED);
    listen(canvas, {
      pointerdown: ({ button, clientX }) => {
        if (button === 0) drag = { x: clientX, moved: false };
      },
      pointermove: (event) => {
        if (!drag) return;
        drag.moved ||= Math.abs(event.clientX - drag.x) > SLOP;
        if (!drag.moved) return;
        canvas.setPointerCapture(event.pointerId);
        this.goTo(timeOf(event));
      },
      pointerup: (event) => {
        if (drag && !drag.moved && !clicked(event)) {
          const time = timeOf(event);
          if (time >= this.state.view.from - this.axis.typical) this.goTo(time);
        }
        drag = null;
      },
      pointercancel: () => (drag = null),
    });
  }

  #listen() {
    const { router, axisCanvas, picture } = this;
    const routeAt = (event: MouseEvent) => {
      const [x, y] = pointIn(router, event);
      return arrivalAt(this.arrivals, x - BLEED, y, this.#pitch)?.route;
    };
    this.scrub(router, (event) => {
      const route = routeAt(event);
      if (route) this.selectRoute(route, true);
      return !!route;
    });
    this.scrub(axisCanvas);
    this.tooltip.listen(router, routeAt, (route) => this.#describe(route));
    onWheel(picture, {
      pan: (delta) =>
        this.state.set({ view: panView(this.state.view, delta / this.scale.per, this.axis) }),
      zoom: (factor, event) => this.zoom(factor, this.scale.placeAt(pointIn(picture, event)[0])),
    });
  }

  #describe(route: Route) {
    const { model } = this;
    const delivered = model.delivered(route);
    const ttft = model.ttft(route.request);
    return [
      `${route.request.name}: ${plural(route.prompt, "prompt token")}, at ${duration(route.at)} to replica ${route.replica}`,
      `${predictedHit(route)} predicted, ${delivered === null ? "not admitted" : `${delivered} delivered`}; ${route.reason.replaceAll("_", " ")}`,
      ttft === null ? "no token yet" : `first token after ${duration(ttft)}`,
    ];
  }
}
