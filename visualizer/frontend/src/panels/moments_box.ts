/**
 * Beside the sentence: which of the moments this is, buttons to the previous and the next one, and what comes next.
 */

import type { Board } from "../board/board.ts";
import { h, plural, say } from "../drawing/html.ts";
import { momentsAround } from "../model/moments.ts";
import { digits } from "../model/words.ts";
import { Painted, paintWords } from "./painted.ts";

const WIDTH = 170; // px, as in board.css
const BUTTONS = 68; // px of both, with their gaps
const MARGIN = 2; // px above what comes next
const FORM = { size: 11, line: 15 };

export class MomentsBox {
  where = h("span.muted");
  next = h("p.muted");
  painted = [new Painted(this.where), new Painted(this.next)];
  buttons: HTMLButtonElement[];
  element: HTMLElement;

  constructor(go: (by: number) => void) {
    const button = (act: string, sign: string, title: string, by: number) =>
      h("button", { "data-act": act, title, "aria-label": title, click: () => go(by) }, sign);
    this.buttons = [
      button("previous-moment", "‹", "Previous moment (Shift + M)", -1),
      button("next-moment", "›", "Next moment (M)", 1),
    ];
    const [where, next] = this.painted;
    this.element = h(
      "div.moments.small",
      { role: "group", "aria-label": "Moments" },
      h("div.line", where.element, ...this.buttons),
      next.element,
    );
  }

  #words({ model, frame }: Board) {
    const { count, number, next } = momentsAround(model, frame.step);
    const visibility = count ? "" : "hidden";
    if (this.element.style.visibility !== visibility) this.element.style.visibility = visibility;
    return [
      number ? `moment ${digits(number)} of ${digits(count)}` : plural(count, "moment"),
      next ? `next: ${next.words} at step ${next.step}` : "no later moment",
    ];
  }

  /** Enables the buttons: after all that is painted, because a changed button makes a text on a canvas compute styles. */
  enable({ model, frame }: Board) {
    const { previous, next } = momentsAround(model, frame.step);
    const [back, forward] = this.buttons;
    if (back.disabled === !!previous) back.disabled = !previous;
    if (forward.disabled === !!next) forward.disabled = !next;
  }

  write(board: Board) {
    const [where, next] = this.#words(board);
    say(this.where, where);
    say(this.next, next);
  }

  paint(board: Board) {
    const { muted: color } = board.theme;
    const context = board.context();
    const [where, next] = this.#words(board);
    const right = WIDTH - BUTTONS;
    const paint = (at: number, text: string, width: number, height: number) => {
      const painter = this.painted[at].begin(width, height, board, text);
      const form = {
        ...FORM,
        y: at ? MARGIN : 0,
        width,
        right: at || !board.narrow ? width : undefined,
        color,
      };
      paintWords(painter, [{ text }], form, context);
    };
    paint(0, where, right, FORM.line);
    paint(1, next, WIDTH, MARGIN + 2 * FORM.line);
  }
}
