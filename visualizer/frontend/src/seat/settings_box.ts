/** Other settings from this step on: drag the number of seats or the token budget, take a block away, add one. */

import type { Answer, Choice } from "../board/seat.ts";
import { h, plural } from "../drawing/html.ts";

const CALM = 250; // ms without a change before the scheduler runs
type Settings = NonNullable<Answer["settings"]>;

export class SettingsBox {
  #choose: (choice: Choice) => void;
  #now: Settings = { seats: 0, budget: 0, blocks: 0 };
  #blocks = 0;
  #timer: number | undefined;
  #seats = this.#slider("seats", "seat");
  #budget = this.#slider("budget", "token");
  #said = h("output");
  element = h(
    "fieldset.settings",
    h("legend.small.muted", "or go on from this step with"),
    this.#seats.row,
    this.#budget.row,
    h(
      "div.row.line",
      h("span", "memory"),
      h(
        "button",
        { "data-act": "take-block", click: () => this.#addBlocks(-1) },
        "take a block away",
      ),
      h("button", { "data-act": "add-block", click: () => this.#addBlocks(1) }, "add a block"),
      this.#said,
    ),
  );

  constructor(choose: (choice: Choice) => void) {
    this.#choose = choose;
  }

  /** Shows what the engine has. */
  show(settings: Settings) {
    this.#now = settings;
    this.#blocks = 0;
    const { seats, budget } = settings;
    Object.assign(this.#seats.input, { min: 1, max: Math.max(2 * seats, seats + 4), value: seats });
    Object.assign(this.#budget.input, { min: 1, max: 2 * budget, value: budget });
    this.#write();
  }

  #slider(name: "seats" | "budget", noun: string) {
    const input = h("input", { type: "range", step: 1, name, input: () => this.#changed() });
    const value = h("output");
    const label = name === "seats" ? "seats" : "budget of a step";
    return { input, value, noun, row: h("label.row.line", h("span", label), input, value) };
  }

  #addBlocks(by: number) {
    this.#blocks += by;
    this.#changed();
  }

  #write() {
    for (const { input, value, noun } of [this.#seats, this.#budget])
      value.textContent = plural(Number(input.value), noun);
    const since = this.#blocks > 0 ? ", from the first step on" : "";
    this.#said.textContent = `${plural(this.#now.blocks + this.#blocks, "block")}${since}`;
  }

  #changed() {
    this.#write();
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => {
      const [seats, budget] = [Number(this.#seats.input.value), Number(this.#budget.input.value)];
      this.#choose({
        type: "settings",
        seats: seats === this.#now.seats ? null : seats,
        budget: budget === this.#now.budget ? null : budget,
        blocks: this.#blocks,
      });
    }, CALM);
  }
}
