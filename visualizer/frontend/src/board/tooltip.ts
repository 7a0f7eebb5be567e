/** The tooltip: a box with text about the thing under the pointer. */

import { h, hide, listen } from "../drawing/html.ts";
import { classOf, type Line, textOf } from "./descriptions.ts";
import { patchChildren, v } from "./patch_children.ts";

/** null: nothing to say */
type Describe = () => Line[] | null | undefined;

export class Tooltip {
  root: HTMLElement;
  element = h("div.tip.small", { role: "tooltip", hidden: true });
  describe: Describe | null = null;

  constructor(root: HTMLElement) {
    this.root = root;
    root.append(this.element);
  }

  /**
   * Describes what is under the pointer on a canvas while it moves there. `find` returns the thing, which a click takes if
   * `clicks` says so.
   */
  listen<Thing>(
    canvas: HTMLElement,
    find: (event: MouseEvent) => Thing | null | undefined,
    describe: (thing: Thing) => Line[] | null | undefined,
    clicks: (thing: Thing) => boolean = () => true,
  ) {
    listen(canvas, {
      pointermove: (event) => {
        const thing = find(event);
        canvas.style.cursor = thing != null && clicks(thing) ? "pointer" : "";
        // Later it describes what is there then, because the board may have moved to another step.
        this.show(event, () => {
          const now = find(event);
          return now == null ? null : describe(now);
        });
      },
      pointerleave: () => this.hide(),
    });
  }

  /** Shows the lines that `describe()` returns beside the pointer: the first in ink, the others muted. */
  show(event: MouseEvent, describe: Describe | null) {
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
    hide(this.element, !lines.length);
    patchChildren(
      this.element,
      lines.map((line) => v("p", { class: classOf(line) }, textOf(line))),
    );
  }

  hide() {
    this.describe = null;
    this.element.hidden = true;
  }
}
