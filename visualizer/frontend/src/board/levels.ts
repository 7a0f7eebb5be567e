/** How much a board shows: a level adds panels and words to the one before, and changes neither marks nor numbers. */

import { h, setAttribute } from "../drawing/html.ts";
import { LEVELS, type Level } from "../model/sentence.ts";
import type { PanelName } from "./board.ts";

/** The panels of the levels below the whole board. */
const PANELS: Partial<Record<Level, PanelName[]>> = {
  lanes: ["timeline"],
  memory: ["timeline", "blocks", "tree"],
};
const WORDS: Record<Level, [name: string, asks: string]> = {
  lanes: ["Lanes", "Who moves, and who waits?"],
  memory: ["+ memory", "Where does it go?"],
  all: ["Everything", "What exactly, and why?"],
};

export const levelNamed = (name: string | null | undefined) => LEVELS.find((one) => one === name);

export const hasPanel = (level: Level, name: PanelName) => PANELS[level]?.includes(name) ?? true;

/** Three buttons, one per level, of which one is pressed. */
export class LevelControl {
  buttons: [Level, HTMLButtonElement][];
  element: HTMLElement;

  constructor(choose: (level: Level) => void) {
    this.buttons = LEVELS.map((level) => {
      const [name, asks] = WORDS[level];
      const title = `${asks} (V)`;
      return [level, h("button", { "data-act": level, title, click: () => choose(level) }, name)];
    });
    const buttons = this.buttons.map(([, button]) => button);
    this.element = h("div.levels.line", { role: "group", "aria-label": "Show" }, ...buttons);
  }

  show(shown: Level) {
    for (const [level, button] of this.buttons)
      setAttribute(button, "aria-pressed", `${level === shown}`);
  }
}
