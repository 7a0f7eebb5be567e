/** A box over the board. When it closes, the board gets the focus back. */

import type { Board } from "./board.ts";

export abstract class Box {
  board: Board;
  abstract element: HTMLElement;

  constructor(board: Board) {
    this.board = board;
  }

  get isOpen() {
    return !this.element.hidden;
  }

  close() {
    this.element.hidden = true;
    this.board.root.focus({ preventScroll: true });
  }
}
