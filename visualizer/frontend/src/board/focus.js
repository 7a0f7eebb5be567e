/** Keeps the keyboard focus when the focused element is replaced by its counterpart of another step. */

export class Focus {
  #kept = null;

  constructor(root) {
    this.root = root;
  }

  /** Remembers which of the replaced elements has the focus. */
  keep() {
    this.#kept = null;
    const active = this.root.getRootNode().activeElement;
    if (active === this.root || !this.root.contains(active)) return;
    const panel = active.closest("section, .sentence");
    if (!panel) return;
    const place = `.${panel.className.split(" ")[0]}`;
    const { request } = active.dataset;
    if (active.classList.contains("chip")) this.#kept = `${place} .chip[data-request="${request}"]`;
    else if (active.classList.contains("scroll")) this.#kept = `${place} .scroll`;
    else if (active.matches(".source *")) this.#kept = `${place} .source ${active.localName}`;
  }

  restore() {
    if (!this.#kept) return;
    const next = this.root.querySelector(this.#kept) ?? this.root;
    if (next !== next.getRootNode().activeElement) next.focus({ preventScroll: true });
  }
}
