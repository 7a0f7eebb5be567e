/** The box that tells what is under the pointer. */

import { h } from "./html.js";

export class Tip {
  constructor(root) {
    this.root = root;
    this.element = h("div", { class: "tip", role: "tooltip", hidden: true });
    root.append(this.element);
  }

  /** Shows lines of text beside the pointer: the first in ink, the others muted. */
  show(event, lines) {
    if (!lines?.length) {
      this.hide();
      return;
    }
    this.element.replaceChildren(
      ...lines.map((line) => h("p", { class: line.mono ? "mono" : null }, line.text ?? line)),
    );
    this.element.hidden = false;
    const root = this.root.getBoundingClientRect();
    const own = this.element.getBoundingClientRect();
    const x = event.clientX - root.left;
    const y = event.clientY - root.top;
    const left = x + 14 + own.width > root.width - 8 ? x - own.width - 10 : x + 14;
    const top = y + 16 + own.height > root.height ? y - own.height - 10 : y + 16;
    this.element.style.left = `${Math.max(4, left)}px`;
    this.element.style.top = `${Math.max(4, top)}px`;
  }

  hide() {
    this.element.hidden = true;
  }
}
