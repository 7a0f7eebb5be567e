/** Printing: on white, as wide as the paper, with a line that says what it is. Style rules do the rest. */

import { h } from "../drawing/html.ts";
import type { Board } from "./board.ts";

const PAPER = 1040; // CSS px of an A4 page in landscape, without its margins
const LARGEST = 0.75;

export function prepareForPrint(board: Board) {
  const { root, signal } = board;
  const foot = h("p.print-foot.small.muted");
  root.append(foot);
  addEventListener(
    "beforeprint",
    () => {
      if (!board.laidOutFor) return;
      const title = board.about?.title ?? document.title;
      const { step } = board.store;
      foot.textContent = `${title}, step ${step} of ${board.model.lastStep}: ${board.linkOf(board.state())}`;
      root.style.setProperty("--paper", `${Math.min(LARGEST, PAPER / board.laidOutFor)}`);
      root.style.setProperty("--width", `${board.laidOutFor}px`);
      board.setTheme("light");
    },
    { signal },
  );
  addEventListener("afterprint", () => board.setTheme(), { signal });
}
