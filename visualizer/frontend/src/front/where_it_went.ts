/** The last scene: the visitor's request as one bar on wall time, and the whole board with that request selected. */

import type { Board } from "../board/board.ts";
import { h } from "../drawing/html.ts";
import { count } from "../model/words.ts";
import { type Part, partsOf, totalMs } from "./parts.ts";
import type { Run } from "./run.ts";
import { seconds } from "./sentences.ts";

export class WhereItWent {
  #section: HTMLElement;
  #go: (scene: number) => void;
  #run: Run | null = null;
  #log: Uint8Array[] = [];
  #board: Promise<Board> | null = null;
  #end = new AbortController();

  constructor(go: (scene: number) => void) {
    this.#go = go;
    this.#section = document.querySelector("#scene-5") as HTMLElement;
    new IntersectionObserver(([{ isIntersecting }]) => isIntersecting && this.#draw(), {
      rootMargin: "400px",
    }).observe(this.#section);
  }

  /** @param engine the time in which the engine was starting, in microseconds */
  show(run: Run, engine: number, log: Uint8Array[]) {
    if (run === this.#run) return;
    this.#run = run;
    this.#log = log;
    this.#end.abort();
    this.#end = new AbortController();
    this.#board = null;
    this.#find(".board").replaceChildren();
    const parts = partsOf(run, engine);
    const total = totalMs(parts);
    this.#find("h2").textContent = `This is where your ${seconds(1000 * total)} went`;
    const pieces = count(parts.length, "part");
    this.#find(".what").textContent =
      `The ${pieces} add up to ${total.toLocaleString("en")} ms, measured in this page; the picture showed them more slowly. Click one to see the decision behind it.`;
    const bar = h("div.bar", { "aria-hidden": "true" });
    const list = h("ol.parts");
    parts.forEach((part) => {
      const piece = h(`i.${part.kind}`, { click: () => this.#look(part) });
      piece.style.flexGrow = `${part.ms}`;
      bar.append(piece);
      list.append(this.#item(part));
    });
    this.#find(".time").replaceChildren(bar, list);
    const { top, bottom } = this.#section.getBoundingClientRect();
    if (top < innerHeight + 400 && bottom > 0) this.#draw();
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
      h(
        "button.part",
        { click: () => this.#look(part) },
        h("b", `${part.ms} ms`),
        ` ${part.words}`,
      ),
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
