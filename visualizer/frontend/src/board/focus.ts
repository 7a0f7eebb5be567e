/** Keeps the keyboard focus when the focused element is replaced by its counterpart of another step. */

import { focused } from "../drawing/html.ts";

export class Focus {
  /** The selector of the counterpart. */
  #kept: string | null = null;
  root: HTMLElement;

  constructor(root: HTMLElement) {
    this.root = root;
  }

  /** Remembers which of the replaced elements has the focus. */
  keep() {
    this.#kept = null;
    const active = focused(this.root);
    if (!active || active === this.root || !this.root.contains(active)) return;
    const panel = active.closest("section, .sentence");
    if (!panel) return;
    const place = `.${panel.className.split(" ")[0]}`;
    const { request } = active.dataset;
    if (active.classList.contains("chip")) this.#kept = `${place} .chip[data-request="${request}"]`;
    else if (active.classList.contains("scroll")) this.#kept = `${place} .scroll`;
    else if (active.matches(".term")) this.#kept = `${place} [data-term="${active.dataset.term}"]`;
    else if (active.matches(".source *")) this.#kept = `${place} .source ${active.localName}`;
  }

  restore() {
    if (!this.#kept) return;
    const next = (this.root.querySelector(this.#kept) ?? this.root) as HTMLElement;
    if (next !== focused(next)) next.focus({ preventScroll: true });
  }
}
