/** A part of a board, or of what else `Of` is. */

import type { Board } from "./board.ts";

export abstract class Part<Of = Board> {
  board: Of;

  constructor(board: Of) {
    this.board = board;
  }
}
