/**
 * The tooltip: a box with text about the thing under the pointer.
 *
 * @typedef {() => Line[] | null | undefined} Describe  null: nothing to say
 */

/** @import { Line } from "./descriptions.js" */
import { h } from "../drawing/html.js";
import { classOf, textOf } from "./descriptions.js";

export class Tooltip {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.element = h("div", { class: "tip", role: "tooltip", hidden: true });
    root.append(this.element);
    /** @type {Describe | null} */
    this.describe = null;
  }

  /**
   * Shows the lines that `describe()` returns beside the pointer: the first in ink, the others muted.
   *
   * @param {MouseEvent} event @param {Describe | null} describe
   */
  show(event, describe) {
    this.describe = describe;
    this.update();
    if (this.element.hidden) return;
    const root = this.root.getBoundingClientRect();
    const own = this.element.getBoundingClientRect();
    const x = event.clientX - root.left;
    const y = event.clientY - root.top;
    const left = x + 14 + own.width > root.width - 8 ? x - own.width - 10 : x + 14;
    const top = y + 16 + own.height > root.height ? y - own.height - 10 : y + 16;
    this.element.style.left = `${Math.max(4, left)}px`;
    this.element.style.top = `${Math.max(4, top)}px`;
  }

  /** Updates the text after the board has moved to another step. */
  update() {
    const lines = this.describe?.() ?? [];
    this.element.hidden = !lines.length;
    this.element.replaceChildren(
      ...lines.map((line) => h("p", { class: classOf(line) }, textOf(line))),
    );
  }

  hide() {
    this.describe = null;
    this.element.hidden = true;
  }
}
