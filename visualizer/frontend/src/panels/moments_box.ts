/**
 * Beside the sentence: which of the moments this is, buttons to the previous and the next one, and what comes next.
 */

import { h, plural, say } from "../drawing/html.ts";
import type { Model } from "../model/model.ts";
import { momentsAround } from "../model/moments.ts";

export class MomentsBox {
  where = h("span.muted");
  next = h("p.muted");
  buttons: HTMLButtonElement[];
  element: HTMLElement;

  constructor(go: (by: number) => void) {
    const button = (act: string, sign: string, title: string, by: number) =>
      h("button", { "data-act": act, title, "aria-label": title, click: () => go(by) }, sign);
    this.buttons = [
      button("previous-moment", "‹", "Previous moment (Shift + M)", -1),
      button("next-moment", "›", "Next moment (M)", 1),
    ];
    this.element = h(
      "div.moments.small",
      { role: "group", "aria-label": "Moments" },
      h("div.line", this.where, ...this.buttons),
      this.next,
    );
  }

  show(model: Model, step: number) {
    const { count, number, previous, next } = momentsAround(model, step);
    this.element.style.visibility = count ? "" : "hidden";
    say(this.where, number ? `moment ${number} of ${count}` : plural(count, "moment"));
    say(this.next, next ? `next: ${next.words} at step ${next.step}` : "no later moment");
    const [back, forward] = this.buttons;
    if (back.disabled === !!previous) back.disabled = !previous;
    if (forward.disabled === !!next) forward.disabled = !next;
  }
}
