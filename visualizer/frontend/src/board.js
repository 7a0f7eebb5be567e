/**
 * The board: one log, one cursor, one selection, and the panels that show them.
 *
 * Everything the reader does goes through `goTo`, `select` and the other verbs here; the store tells the
 * panels, which are redrawn at most once a frame. Attributes on the root say in text what is shown,
 * for tests and for whoever embeds the board.
 */

import css from "./board.css";
import { buildControls, SPEEDS } from "./controls.js";
import { decisionNodes } from "./decisions.js";
import { h } from "./html.js";
import { buildHelp, listenToKeys } from "./keys.js";
import { MapPanel } from "./map_panel.js";
import { openingRequest, openingStep } from "./model/index.js";
import { lookOf, THEMES } from "./palette.js";
import { SANS } from "./pencil.js";
import { fitSentence } from "./sentence_panel.js";
import { Store } from "./store.js";
import { themeName, watchTheme } from "./theme.js";
import { TimePanel } from "./time_panel.js";
import { Tip } from "./tip.js";
import { tokenNodes } from "./tokens.js";
import { TreePanel } from "./tree_panel.js";

const PROJECTOR = { from: 1800, unit: 1.5 };
const NARROW = 720;
const SPARE = 130; // px beside the timeline that are worth filling

export class Board {
  /**
   * Builds an empty board in `host`. `options`: `signal` ends it, `theme` overrides the host's theme,
   * `onChange({step, selected})` hears of every move.
   */
  constructor(host, { signal, theme, onChange = () => {} }) {
    this.signal = signal;
    this.onChange = onChange;
    this.store = new Store({ step: 0, selected: null, playing: false, speed: 5 });
    this.root = h("div", {
      class: "underglass",
      tabindex: "0",
      role: "group",
      "aria-label": "Board",
      "data-lm-suppress-shortcuts": "true",
      "data-ready": "false",
    });
    this.root.append(h("style", {}, css));
    host.append(this.root);
    signal.addEventListener("abort", () => this.root.remove());
    this.fixedTheme = theme;
    this.setTheme();
    watchTheme(() => this.setTheme(), signal);
  }

  setTheme() {
    const name = this.fixedTheme ?? themeName();
    this.theme = THEMES[name];
    this.root.dataset.theme = name;
    this.root.style.colorScheme = name;
    this.root.style.setProperty("--sans", SANS);
    for (const [key, value] of Object.entries(this.theme)) {
      if (typeof value === "string") this.root.style.setProperty(`--${key}`, value);
    }
    if (this.laidOutFor) this.render();
  }

  /** Shows nodes in place of a picture: nothing recorded yet, loading, or what is wrong. */
  say(kind, ...nodes) {
    this.message?.remove();
    this.message = h(
      "div",
      { class: "message", "data-message": kind, role: kind === "error" ? "alert" : "status" },
      ...nodes,
    );
    this.root.style.setProperty("--px", "1px");
    this.root.append(this.message);
    this.root.dataset.ready = kind === "loading" ? "false" : kind;
  }

  /** Shows a model, at `step` with `selected`, or where something happens. */
  open(model, { step, selected } = {}) {
    this.message?.remove();
    this.model = model;
    Object.assign(this.store, openingView(model, step, selected));
    if (!this.grid) this.build();
    for (const panel of this.panels) panel.setModel(model);
    this.layout();
  }

  build() {
    const { signal, root, store } = this;
    this.sentence = h("p", { class: "sentence", "aria-live": "polite" });
    this.tip = new Tip(root);
    this.time = new TimePanel(this);
    this.map = new MapPanel(this);
    this.tree = new TreePanel(this);
    this.panels = [this.time, this.map, this.tree];
    this.decisions = h("section", { class: "decisions", "aria-label": "Decisions" });
    this.tokens = h("section", { class: "tokens", "aria-label": "Tokens" });
    this.controls = buildControls(this.verbs());
    this.time.element.prepend(...this.controls.elements);
    this.help = buildHelp(() => this.toggleHelp());
    const panels = [
      this.time.element,
      this.map.element,
      this.decisions,
      this.tree.element,
      this.tokens,
    ];
    this.grid = h("div", { class: "grid" }, ...panels);
    root.append(this.sentence, this.grid, this.help);
    listenToKeys(root, this.verbs(), signal);
    root.addEventListener("click", (event) => this.clicked(event), { signal });
    store.listen((names) => this.changed(names), signal);
    // Its height changes with what it shows; only a new width asks for a new layout.
    const observer = new ResizeObserver(
      () => this.root.clientWidth !== this.laidOutFor && this.layout(),
    );
    observer.observe(root);
    signal.addEventListener("abort", () => observer.disconnect());
  }

  // Verbs

  goTo(step) {
    this.store.set({ step: this.clamp(step) });
  }

  select(id) {
    this.store.set({ selected: id });
  }

  clamp(step) {
    return clampStep(this.model, step);
  }

  verbs() {
    const { store } = this;
    return {
      step: (delta) => this.goTo(store.step + delta),
      first: () => this.goTo(this.model.firstStep),
      last: () => this.goTo(this.model.lastStep),
      toggle: () => this.play(!store.playing),
      faster: () => store.set({ speed: SPEEDS[(SPEEDS.indexOf(store.speed) + 1) % SPEEDS.length] }),
      neighbour: (delta) => this.selectNeighbour(delta),
      zoom: (factor) => this.time.zoom(factor),
      pan: (share) => this.time.pan(share),
      fit: () => this.time.fit(),
      help: () => this.toggleHelp(),
      escape: () => (this.help.hidden ? this.select(null) : this.toggleHelp()),
    };
  }

  selectNeighbour(delta) {
    const { requests } = this.model;
    const at = this.model.request(this.store.selected)?.hueIndex;
    const next = at == null ? (delta > 0 ? 0 : requests.length - 1) : at + delta;
    if (requests[next]) this.select(requests[next].id);
  }

  toggleHelp() {
    this.help.hidden = !this.help.hidden;
    if (this.help.hidden) this.root.focus({ preventScroll: true });
    else this.help.querySelector("button").focus({ preventScroll: true });
  }

  /** Plays from the cursor, from the start again if it stands at the end, and stops at the end. */
  play(on) {
    const { store, model } = this;
    if (on && store.step >= model.lastStep) this.goTo(model.firstStep);
    store.set({ playing: on });
    if (!on || this.ticking) return;
    this.ticking = true;
    let last = performance.now();
    let due = 0;
    const tick = (now) => {
      if (!store.playing || this.signal.aborted) {
        this.ticking = false;
        return;
      }
      due += ((now - last) / 1000) * store.speed;
      last = now;
      const steps = Math.floor(due);
      due -= steps;
      if (steps) this.goTo(store.step + steps);
      if (store.step >= this.model.lastStep) store.set({ playing: false });
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  clicked(event) {
    const named = event.target.closest("[data-request]");
    if (named) this.select(Number(named.dataset.request));
  }

  // Drawing

  changed(names) {
    if (!this.laidOutFor) return;
    const moved = names.has("step") || names.has("selected");
    if (names.has("step")) this.time.revealCursor();
    if (names.has("selected")) this.time.revealSelected();
    if (moved) this.render();
    else if (names.has("scrolled")) this.time.draw();
    this.showControls();
    if (moved) this.onChange({ step: this.store.step, selected: this.store.selected });
  }

  /**
   * Fits the board to its width: one column when narrow, everything larger at a projector. In a tab that
   * is not shown it has no width, and waits for one.
   */
  layout() {
    if (!this.model || !this.root.clientWidth) return;
    const width = this.root.clientWidth;
    this.laidOutFor = width;
    this.unit = width >= PROJECTOR.from ? PROJECTOR.unit : 1;
    this.narrow = width / this.unit < NARROW;
    this.root.dataset.layout = this.narrow ? "narrow" : this.unit > 1 ? "projector" : "wide";
    this.root.style.setProperty("--px", `${this.unit}px`);
    for (const panel of this.panels) panel.layout();
    this.time.revealSelected();
    // Where the map is much lower than the timeline, the decisions move up beside it.
    const spare = this.time.height - this.map.height;
    this.root.toggleAttribute("data-stacked", !this.narrow && spare > SPARE);
    this.render();
    this.root.dataset.ready = "true";
  }

  render() {
    const { model, store, theme, root } = this;
    this.frame = model.frame(store.step);
    const context = { model, frame: this.frame, theme, selected: store.selected };
    const focused = this.focusedChip();
    // Pictures first: once words have changed, a canvas that chooses a font resolves the page's styles.
    for (const panel of this.panels) panel.draw();
    const width = this.laidOutFor / this.unit - (this.narrow ? 28 : 40);
    fitSentence(this.sentence, context, { narrow: this.narrow, unit: this.unit, width });
    for (const panel of this.panels) panel.write();
    this.decisions.replaceChildren(...decisionNodes(context));
    this.tokens.replaceChildren(...tokenNodes(context));
    if (store.selected != null)
      this.tokens.style.setProperty(
        "--hue",
        lookOf(theme, model.request(store.selected).hueIndex).hue,
      );
    this.restoreFocus(focused);
    this.label(root);
    this.showControls();
    showMoment(this.decisions);
  }

  /** Buttons, and whether the sentence is read aloud: not while it changes several times a second. */
  showControls() {
    const { step, playing, speed } = this.store;
    this.controls.show({
      step,
      first: this.model.firstStep,
      last: this.model.lastStep,
      playing,
      speed,
    });
    this.sentence.setAttribute("aria-live", playing ? "off" : "polite");
    this.root.dataset.playing = playing;
  }

  /** The chip that has the focus is replaced with the rest of the words: find its successor. */
  focusedChip() {
    const active = this.root.getRootNode().activeElement;
    if (!active?.classList?.contains("chip") || !this.root.contains(active)) return null;
    const panel = active.closest("section, .sentence");
    return { panel: panel.className, request: active.dataset.request };
  }

  restoreFocus(focused) {
    if (!focused) return;
    const panel = this.root.querySelector(`.${focused.panel}`);
    const chip = panel?.querySelector(`.chip[data-request="${focused.request}"]`);
    (chip ?? this.root).focus({ preventScroll: true });
  }

  label(root) {
    const { model, store, frame } = this;
    const { counts } = frame;
    root.setAttribute(
      "aria-label",
      `Board: ${model.requests.length} requests, steps ${model.firstStep} to ${model.lastStep}`,
    );
    Object.assign(root.dataset, {
      step: store.step,
      steps: model.lastStep,
      requests: model.requests.length,
      selected: store.selected ?? "",
      running: frame.running.length,
      waiting: frame.waiting.length,
      tokens: frame.budget.tokens,
      ...counts,
    });
  }
}

/** Scrolls a long list of decisions to the event of the moment; never the page around the board. */
function showMoment(panel) {
  const list = panel.querySelector(".scroll");
  const moment = panel.querySelector(".moment");
  if (moment && moment.offsetTop + moment.offsetHeight > list.clientHeight) {
    list.scrollTop = moment.offsetTop - list.clientHeight / 2;
  }
}

const clampStep = (model, step) =>
  Math.min(Math.max(Math.round(step), model.firstStep), model.lastStep);

/** The first frame: what was asked for, else the step where something happens and whom it happens to. */
function openingView(model, step, selected) {
  const at = clampStep(model, step ?? openingStep(model));
  if (selected !== undefined) return { step: at, selected };
  if (step == null) return { step: at, selected: openingRequest(model) };
  const moment = model.frame(at).decisions.find(({ hot, request }) => hot && request != null);
  return { step: at, selected: moment?.request ?? null };
}
