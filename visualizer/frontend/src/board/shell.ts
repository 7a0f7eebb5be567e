/**
 * The root element of a board: its style sheet, its theme, messages in place of a picture, and attributes that
 * state what is shown, for tests and for embedding pages.
 */

import { h } from "../drawing/html.ts";
import type { Theme } from "../drawing/palette.ts";
import { momentsAround } from "../model/moments.ts";
import css from "./board.css";
import type { Board } from "./board.ts";
import { dress, type ThemeName, themeName, watchTheme } from "./theme.ts";

/** a log */
export type About = { title: string; caption?: string };

export class Shell {
  /** The width in CSS pixels that the layout fits; 0: there is none yet. */
  laidOutFor = 0;
  signal: AbortSignal;
  root = h("div.underglass", {
    tabindex: "0",
    role: "group",
    "aria-label": "Board",
    "data-lm-suppress-shortcuts": "true",
    "data-ready": "false",
  });
  fixedTheme: "light" | "dark" | undefined;
  theme!: Theme;
  message?: HTMLDivElement;

  /** `theme` overrides the host's; the element is removed when `signal` aborts. */
  constructor(host: Element, { signal, theme }: { signal: AbortSignal; theme?: ThemeName }) {
    this.signal = signal;
    this.root.append(h("style", css));
    host.append(this.root);
    signal.addEventListener("abort", () => this.root.remove());
    this.fixedTheme = theme;
    this.setTheme();
    watchTheme(() => this.setTheme(), signal);
  }

  /** Sets the theme; by default, the host's. */
  setTheme(name: ThemeName = this.fixedTheme ?? themeName()) {
    this.theme = dress(this.root, name);
    if (this.laidOutFor) this.render();
  }

  /** Draws everything. */
  render() {}

  /** Shows a message in place of a picture; `kind` is its `data-message`. */
  showMessage(kind: "loading" | "error" | "empty" | "waiting", ...nodes: (Node | string)[]) {
    this.message?.remove();
    this.message = h(
      "div.message",
      { "data-message": kind, role: kind === "error" ? "alert" : "status" },
      ...nodes,
    );
    this.root.style.setProperty("--px", "1px");
    this.root.append(this.message);
    this.root.dataset.ready = kind === "loading" ? "false" : kind;
  }

  /** States on the root what is shown. */
  label(this: Board) {
    const { model, store, frame, root } = this;
    root.setAttribute(
      "aria-label",
      `${this.panel ?? "Board"}: ${model.requests.length} requests, steps ${model.firstStep} to ${model.lastStep}`,
    );
    Object.assign(root.dataset, {
      step: store.step,
      steps: model.lastStep,
      requests: model.requests.length,
      selected: store.selected ?? "",
      block: store.block ?? "",
      running: frame.running.length,
      waiting: frame.waitingCount,
      tokens: frame.budget.tokens,
      touched: store.touched,
      moment: momentsAround(model, store.step).here?.kind ?? "",
      moments: momentsAround(model, store.step).count,
      ...frame.counts,
    });
  }
}

/** The title and caption of a log that has them. */
export const aboutNodes = (about: About | null | undefined) =>
  about?.title ? [h("h2.title", about.title), h("p.caption", about.caption)] : [];
