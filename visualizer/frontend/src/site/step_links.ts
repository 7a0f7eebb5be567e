/** Steps that the prose beside a picture names are links, which move the picture's cursor. */

import type { Board, BoardState } from "../board/board.ts";
import { h } from "../drawing/html.ts";
import type { Follower } from "./outputs.ts";

const NAMED = /\bsteps? (\d+)\b/gi;

/** Text of prose in which a step may become a link. */
const isPlain = ({ parentElement: above }: Node) =>
  !above?.closest("a, code, pre, summary, h1, h2");

export class StepLinks implements Follower {
  scene: HTMLElement;
  cell: string; // the id of the picture's cell
  links: Map<HTMLElement, number> | null = null;
  board: Board | null = null;

  constructor(scene: HTMLElement, cell: string) {
    this.scene = scene;
    this.cell = cell;
  }

  follow(board: Board) {
    this.board = board;
    this.links ??= this.make(board);
    this.show(board.state());
  }

  show({ step }: BoardState) {
    for (const [link, at] of this.links ?? [])
      if (at === step) link.setAttribute("aria-current", "step");
      else link.removeAttribute("aria-current");
  }

  /** Makes links of the steps that the board has: what comes later is not to be seen yet. */
  make({ model }: Board) {
    const links: Map<HTMLElement, number> = new Map();
    if (!model) return links;
    for (const text of this.texts()) {
      const pieces: (string | HTMLElement)[] = [];
      let end = 0;
      for (const { 0: words, 1: number, index } of text.data.matchAll(NAMED)) {
        const step = Number(number);
        if (step < model.firstStep || step > model.lastStep) continue;
        const link = h("a.step", { href: `#${this.cell}&step=${step}` }, words);
        link.addEventListener("click", (event: Event) => {
          event.preventDefault();
          this.board?.goTo(step);
          document.getElementById(this.cell)?.scrollIntoView({ block: "nearest" });
        });
        links.set(link, step);
        pieces.push(text.data.slice(end, index), link);
        end = index + words.length;
      }
      if (pieces.length) text.replaceWith(...pieces, text.data.slice(end));
    }
    return links;
  }

  texts() {
    const found: Text[] = [];
    for (const prose of this.scene.querySelectorAll(":scope > .prose")) {
      const walker = document.createTreeWalker(prose, NodeFilter.SHOW_TEXT);
      while (walker.nextNode())
        if (isPlain(walker.currentNode)) found.push(walker.currentNode as Text);
    }
    return found;
  }
}
