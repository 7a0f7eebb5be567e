/**
 * Printing: on white, with a line that says what it is, so small that the board fits one page, or at least everything up to
 * the lanes does. Style rules do the rest.
 */

import { h } from "../drawing/html.ts";
import type { Board } from "./board.ts";

const PAPER = { width: 1040, height: 700 }; // CSS px of an A4 page in landscape, without its margins and the foot
const LARGEST = 0.75;
const SMALLEST = 0.6; // smaller letters are hard to read

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
      const tools = root.querySelector<HTMLElement>(".foot")?.offsetHeight ?? 0;
      const { top } = root.getBoundingClientRect();
      const lanes = board.axis?.element.getBoundingClientRect().bottom ?? Infinity;
      const zooms = [root.scrollHeight - tools, lanes - top].map((height) => PAPER.height / height);
      const largest = Math.min(LARGEST, PAPER.width / board.laidOutFor);
      const fits = zooms.find((zoom) => zoom >= SMALLEST) ?? LARGEST;
      root.style.setProperty("--paper", `${Math.min(largest, fits)}`);
      root.style.setProperty("--width", `${board.laidOutFor}px`);
      board.setTheme("light");
    },
    { signal },
  );
  addEventListener("afterprint", () => board.setTheme(), { signal });
}
