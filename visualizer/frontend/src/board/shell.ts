/**
 * What boards, comparisons and questions have in common: the root element with the style sheet, its theme, its layout
 * for the width, the tooltip, the list of keys, messages in place of a picture, and a board inside.
 */

import { h, onResize } from "../drawing/html.ts";
import type { Theme } from "../drawing/palette.ts";
import css from "./board.css";
import { dress, type ThemeName, themeName, watchTheme } from "./theme.ts";
import { Tooltip } from "./tooltip.ts";

/** a log */
export type About = { title: string; caption?: string };

export interface ShellOptions {
  signal: AbortSignal; // removes the shell when it aborts
  theme?: ThemeName; // overrides the host's
  loadTour?: () => Promise<unknown>; // fetches the module that shows a tour, where the page does not contain it
}

const NARROW = 720;

export class Shell {
  /** The width in CSS pixels that the layout fits; 0: there is none yet. */
  laidOutFor = 0;
  narrow = false;
  signal: AbortSignal;
  fixedTheme: ThemeName | undefined;
  theme!: Theme;
  root: HTMLElement;
  tooltip: Tooltip;
  loadTour: ShellOptions["loadTour"];
  help?: HTMLElement;
  message?: HTMLElement;
  #inside?: AbortController;

  /** `name` has the classes of the root, and `css` the rules for them. */
  constructor(
    host: Element,
    { signal, theme, loadTour }: ShellOptions,
    { name = "", label, css: own = "", ...rest }: Record<"label", string> & Record<string, string>,
  ) {
    this.signal = signal;
    this.fixedTheme = theme;
    this.loadTour = loadTour;
    this.root = h(
      `div.underglass${name}`,
      {
        role: "group",
        "aria-label": label,
        "data-lm-suppress-shortcuts": "true",
        "data-ready": "false",
        "data-only": "",
        style: "--px: 1px",
        ...rest,
        click: (event) => this.clicked(event),
        keydown: keepFromHost,
      },
      h("style", css + own),
    );
    this.tooltip = new Tooltip(this.root);
    host.append(this.root);
    this.setTheme();
    watchTheme(() => this.setTheme(), signal);
    // The height depends on the content; only a new width requires a new layout.
    const isNew = () => this.root.clientWidth !== this.laidOutFor && !this.isTold;
    onResize(this.root, () => isNew() && this.layout(), signal);
    signal.addEventListener("abort", () => this.root.remove());
  }

  /** Sets the theme; by default, the host's. */
  setTheme(name: ThemeName = this.fixedTheme ?? themeName()) {
    this.theme = dress(this.root, name);
    if (!this.laidOutFor) return;
    if (this.root.clientWidth) return this.render();
    // JupyterLab hides its page while it changes its theme.
    this.laidOutFor = 0;
    requestAnimationFrame(() => this.laidOutFor || this.layout());
  }

  /** Fits what is shown to its width. */
  layout() {
    this.laidOutFor = this.root.clientWidth;
    this.narrow = this.isNarrow();
    this.root.dataset.layout = this.narrow ? "narrow" : "wide";
    this.render();
  }

  /** Whether a tour stands in its place. */
  get isTold() {
    return this.root.dataset.tour !== undefined;
  }

  /** Whether there is room for one column only. */
  isNarrow(unit = 1) {
    return this.laidOutFor / unit < NARROW;
  }

  /** Draws everything. */
  render() {}

  clicked(_event: Event): unknown {
    return undefined;
  }

  /** Shows a message in place of a picture; `kind` is its `data-message`. */
  showMessage(kind: "loading" | "error" | "empty" | "waiting", ...nodes: (Node | string)[]) {
    this.message?.remove();
    const role = kind === "error" ? "alert" : "status";
    this.message = h("div.message", { "data-message": kind, role }, ...nodes);
    this.root.style.setProperty("--px", "1px");
    this.root.append(this.message);
    this.root.dataset.ready = kind === "loading" ? "false" : kind;
  }

  /** Opens or closes the list of keys. */
  toggleHelp() {
    const { help, root } = this;
    if (!help) return;
    help.hidden = !help.hidden;
    (help.hidden ? root : help.querySelector("button"))?.focus({ preventScroll: true });
  }

  /** Ends the board inside, if there is one; returns the signal of the next one. */
  endInside() {
    this.#inside?.abort();
    this.#inside = new AbortController();
    return AbortSignal.any([this.signal, this.#inside.signal]);
  }
}

/** The host must not act on any key typed here. Tab moves the focus as usual. */
function keepFromHost(event: KeyboardEvent) {
  if (event.key === "Tab" || event.ctrlKey || event.metaKey || event.altKey) return;
  event.stopPropagation();
}

/** The title and caption of a log that has them. */
export const aboutNodes = (about: About | null | undefined) =>
  about?.title ? [h("h2.title", about.title), h("p.caption.muted", about.caption)] : [];
