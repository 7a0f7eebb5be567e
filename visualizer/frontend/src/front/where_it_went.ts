/** The last scene: the visitor's request as one bar on wall time, and the whole board with that request selected. */

import type { Board } from "../board/board.ts";
import { h } from "../drawing/html.ts";
import { count } from "../model/words.ts";
import { writeChoices } from "./choice_buttons.ts";
import { type Choice, choicesOf, consequence } from "./choices.ts";
import { type Part, partsOf, totalMs } from "./parts.ts";
import type { Run } from "./run.ts";
import { seconds } from "./sentences.ts";
import { spell } from "./spelling.ts";

type Change = (settings: Choice["settings"]) => Promise<{ before: Run; after: Run }>;

export class WhereItWent {
  #section = document.querySelector("#scene-5") as HTMLElement;
  #go: (scene: number) => void;
  #change: Change;
  #run: Run | null = null;
  #log: Uint8Array[] = [];
  #board: Promise<Board> | null = null;
  #end = new AbortController();
  #chosen: number | undefined;

  /**
   * @param go goes to a scene
   * @param change runs the last run again
   */
  constructor(go: (scene: number) => void, change: Change) {
    this.#go = go;
    this.#change = change;
    new IntersectionObserver(([{ isIntersecting }]) => isIntersecting && this.#draw(), {
      rootMargin: "400px",
    }).observe(this.#section);
  }

  /** Forgets the run, when another begins. */
  clear() {
    this.#run = null;
    this.#end.abort();
    this.#board = null;
    for (const name of [".time", ".choices", ".board"]) this.#find(name).replaceChildren();
    delete this.#find(".choices").dataset.key;
    this.#find("h2").textContent = "Where your time went";
    this.#find(".what").textContent =
      "A bar shows it, as soon as the engine has served your request.";
  }

  /** @param engine the time in which the engine was starting, in microseconds */
  show(run: Run, engine: number, log: Uint8Array[]) {
    if (run === this.#run) return;
    this.#run = run;
    this.#log = log;
    this.#end = new AbortController();
    const parts = partsOf(run, engine);
    const total = totalMs(parts);
    this.#find("h2").textContent = `This is where your ${seconds(1000 * total)} went`;
    this.#find(".what").textContent =
      `The ${count(parts.length, "part")} add up to ${ms(total)}, measured in this page. Click one to see the decision behind it.`;
    const list = h("ol.parts", ...parts.map((part) => this.#item(part)));
    this.#find(".time").replaceChildren(this.#bar(parts, total), list);
    this.#chosen = undefined;
    this.#writeChoices();
    const { top, bottom } = this.#section.getBoundingClientRect();
    if (top < innerHeight + 400 && bottom > 0) this.#draw();
  }

  /** Runs the run again with a choice, and draws its bar on the same scale; the same choice again takes it back. */
  async choose(index: number) {
    const run = this.#run;
    const choice = this.#choices[index];
    if (!run || !choice) return;
    this.#find(".bar.after")?.remove();
    this.#chosen = this.#chosen === index ? undefined : index;
    this.#writeChoices();
    if (this.#chosen === undefined) return;
    try {
      const { before, after } = await this.#change(choice.settings);
      if (run !== this.#run || this.#chosen !== index) return;
      const parts = partsOf(after);
      const most = Math.max(totalMs(partsOf(before)), totalMs(parts));
      this.#find(".bar").after(this.#bar(parts, most, ".after"));
      spell(this.#find(".consequence"), consequence(before, after), run);
    } catch (error) {
      this.#find(".consequence").textContent = `This cannot be served: ${(error as Error).message}`;
    }
  }

  get #choices() {
    const run = this.#run;
    return run ? [4, 2, 3].map((scene) => choicesOf(run, scene)[0]) : [];
  }

  #writeChoices() {
    const place = this.#find(".choices");
    writeChoices(place, this.#choices, this.#chosen, (index) => this.choose(index));
  }

  /** @param scale the time that the whole width stands for, in ms */
  #bar(parts: Part[], scale: number, more = "") {
    const bar = h(`div.bar${more}`, { "aria-hidden": "true" });
    for (const part of parts) {
      const piece = h(`i.${part.kind}`, { click: () => this.#look(part) });
      piece.style.flexGrow = `${part.ms}`;
      bar.append(piece);
    }
    const rest = h("i.rest");
    rest.style.flexGrow = `${Math.max(0, scale - totalMs(parts))}`;
    bar.append(rest);
    return bar;
  }

  #item(part: Part) {
    const link = h(
      "button.scene-link",
      { click: () => this.#go(part.scene), "aria-label": `Scene ${part.scene} explains it` },
      `${part.scene}`,
    );
    return h(
      "li",
      { "data-kind": part.kind, "data-ms": part.ms },
      h("button.part", { click: () => this.#look(part) }, h("b", ms(part.ms)), ` ${part.words}`),
      part.scene > 0 && link,
    );
  }

  /** Moves the board's cursor to the decision behind a part. */
  async #look({ kind, step }: Part) {
    for (const item of this.#section.querySelectorAll<HTMLElement>(".parts li"))
      item.classList.toggle("on", item.dataset.kind === kind);
    this.#draw();
    const board = await this.#board;
    board?.goTo(step);
    board?.root.scrollIntoView({ block: "nearest" });
  }

  #draw() {
    if (!this.#run) return;
    this.#board ??= this.#mount(this.#run);
  }

  async #mount(run: Run) {
    const [{ mount }, { seatInPage }] = await Promise.all([
      import("../host/widget.ts"),
      import("../site/boards.ts"),
    ]);
    const log = new Uint8Array(await new Blob(this.#log as BlobPart[]).arrayBuffer());
    const you = run.you;
    return (await mount(this.#find(".board"), {
      log,
      step: you?.preemptions[0]?.step ?? you?.tokenSteps[0] ?? 1,
      selected: you?.id ?? null,
      address: false,
      seat: seatInPage(log),
      signal: this.#end.signal,
    })) as Board;
  }

  #find(selector: string) {
    return this.#section.querySelector(selector) as HTMLElement;
  }
}

const ms = (value: number) => `${value.toLocaleString("en")} ms`;
