/** A box over the board. When it closes, the board gets the focus back. */

import { Part } from "./part.ts";

export abstract class Box extends Part {
  abstract element: HTMLElement;

  get isOpen() {
    return !this.element.hidden;
  }

  close() {
    this.element.hidden = true;
    this.board.root.focus({ preventScroll: true });
  }
}
