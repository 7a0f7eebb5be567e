/** A box with a link to the current view: the page's address, or the call for a notebook cell. */

import { h } from "../drawing/html.ts";
import { Box } from "./box.ts";

export class LinkBox extends Box {
  input = h("input", { type: "text", readonly: true, "aria-label": "This view" });
  status = h("span.muted", { role: "status" });
  element = h(
    "div.box.link.flow",
    { role: "dialog", "aria-label": "Link to this view", hidden: true },
    this.input,
    h("button", { click: () => this.copyText() }, "Copy"),
    this.status,
  );

  open() {
    this.input.value = this.board.linkOf(this.board.state());
    this.status.textContent = "";
    this.element.hidden = false;
    this.input.focus({ preventScroll: true });
    this.input.select();
  }

  /** Copies the link; a page without access to the clipboard selects the text for Ctrl+C. */
  async copyText() {
    try {
      await navigator.clipboard.writeText(this.input.value);
      this.status.textContent = "Copied";
    } catch {
      this.input.select();
      this.status.textContent = "Selected: press Ctrl+C to copy";
    }
  }
}
