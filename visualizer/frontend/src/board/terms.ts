/**
 * Terms that explain themselves. A dotted word opens a card: what it means, in the words of `docs/glossary.md`, this step's
 * numbers, and the lesson. `visualizer/reading/terms.json` has the words.
 */

import terms from "../../../reading/terms.json" with { type: "json" };
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { closest, focused, h, hide, say } from "../drawing/html.ts";
import { type Term, withTerms } from "../drawing/terms.ts";
import { duration } from "../model/duration.ts";
import type { Frame } from "../model/frame.ts";
import { type Fact, missing } from "../model/knowledge.ts";
import { agree, count, sum } from "../model/words.ts";
import type { Board } from "./board.ts";
import { Part } from "./part.ts";
import { v } from "./patch_children.ts";
import { labAddress } from "./sources.ts";

/** Makes the first words of an element a term, or those terms that they contain. */
export function nameTerms(element: Element | null, term?: Term) {
  const words = element?.firstChild;
  if (words?.nodeType !== Node.TEXT_NODE) return;
  const text = words.textContent ?? "";
  const parts = term ? [v("button.term", { "data-term": term }, text)] : withTerms(text);
  const named = h("span", ...parts);
  words.replaceWith(...named.childNodes);
}

const requests = (some: readonly unknown[], what: string) =>
  `${count(some.length, "request")} ${agree(some, "is", "are")} ${what}`;
const ofKind = ({ story }: Frame, kind: string) => story.rows.filter((row) => row.kind === kind);
const tokensOf = (rows: { start: number; end: number }[]) =>
  count(
    sum(rows, ({ start, end }) => end - start),
    "token",
  );

type Shown = Pick<Board, "model" | "store" | "run">;

/** What is known of a term in a step, and the facts that say it. */
const NUMBERS: Partial<Record<Term, [facts: Fact[], words: (frame: Frame, of: Shown) => string]>> =
  {
    token: [
      ["scheduled_tokens", "admissions"],
      ({ story }) =>
        `${count(
          sum(story.gains, ({ ids }) => ids.length),
          "token",
        )} added to outputs`,
    ],
    batch: [
      ["admissions"],
      ({ running }) => `${count(running.length, "request")} in it at the end`,
    ],
    seat: [["settings", "admissions"], ({ seats }) => `${seats.taken} of ${seats.all} taken`],
    waiting: [["queue"], ({ waitingCount }) => `${count(waitingCount, "request")} at the end`],
    prefill: [
      ["scheduled_tokens"],
      (frame) => {
        const rows = ofKind(frame, "prefill");
        return `${tokensOf(rows)} of ${count(rows.length, "prompt")}`;
      },
    ],
    decode: [["scheduled_tokens"], (frame) => count(ofKind(frame, "decode").length, "decode")],
    chunk: [
      ["scheduled_tokens"],
      (frame) => {
        const cut = ofKind(frame, "prefill").filter(({ end, length }) => end < length);
        return `${count(cut.length, "prompt")} left unfinished`;
      },
    ],
    "token budget": [
      ["settings", "scheduled_tokens"],
      ({ budget }) => `${budget.tokens} of ${count(budget.budget, "token")} used`,
    ],
    "KV block": [
      ["settings", "free_blocks", "block_tables"],
      ({ counts, state }) =>
        `${counts.unshared} unshared, ${counts.shared} shared, ${counts.cached} cached and ` +
        `${counts.free} free, of ${state.settings.num_blocks}, with ${count(state.blockSize, "token")} each`,
    ],
    "block table": [
      ["block_tables"],
      (frame, { model, store: { selected } }) => {
        const span = model.request(selected);
        if (!span) return "no request is selected";
        const table = frame.state.requests.get(span.id)?.block_table ?? [];
        return `${span.name} holds ${count(table.length, "block")} at the end`;
      },
    ],
    "radix tree": [
      ["prefix_tree"],
      ({ tree }) =>
        `${count(
          sum(tree, ({ blocks }) => blocks.length),
          "block",
        )} in ${count(tree.length, "node")}`,
    ],
    hit: [
      ["cached_tokens"],
      ({ story: { admissions } }) =>
        admissions.length
          ? `${sum(admissions, ({ found }) => found)} of ${count(
              sum(admissions, ({ length }) => length),
              "token",
            )} of admitted requests found`
          : "no request is admitted",
    ],
    eviction: [
      ["evictions"],
      ({ story }) =>
        `${count(
          sum(story.evictions, ({ blocks }) => blocks.length),
          "block",
        )} evicted`,
    ],
    preemption: [["preemptions"], ({ story }) => requests(story.preemptions, "preempted")],
    recompute: [["scheduled_tokens"], (frame) => `${tokensOf(ofKind(frame, "catchup"))} computed`],
    "copy on write": [
      ["block_tables"],
      ({ story }) => `${count(story.copies.length, "block")} copied`,
    ],
    draft: [
      ["scheduled_tokens"],
      ({ story }) =>
        `${count(
          sum(story.rows, ({ drafts }) => drafts.length),
          "draft",
        )} checked`,
    ],
    TTFT: [["arrivals", "step_times"], (frame, board) => latency(frame, board, 0)],
    ITL: [["admissions", "step_times"], (frame, board) => latency(frame, board, 1)],
    regime: [
      [],
      ({ step }, { run: { run } }) => {
        const regime = run?.regimes.find(({ first, last }) => first <= step && step <= last);
        return regime ? `${regime.kind}, steps ${regime.first} to ${regime.last}` : "none is known";
      },
    ],
  };

/** How long the selected request had waited for its first token, or for its last one after the one before. */
function latency({ step, model }: Frame, { store }: Shown, tokens: 0 | 1) {
  const span = model.request(store.selected);
  if (!span) return "no request is selected";
  const at = span.tokenSteps
    .filter((one) => one <= step)
    .map((one) => model.measures.end.at(one - model.firstStep));
  if (at.length <= tokens) return `${span.name} has ${count(at.length, "token")}`;
  const [from, to] = tokens ? at.slice(-2) : [span.arrivedAt ?? NaN, at[0]];
  if (!(to >= from)) return "this log has no times";
  return `${span.name}'s ${tokens ? "latest" : "first"} came after ${duration(to - from)}`;
}

/** This step's numbers of a term, or that the log lacks them; "" for a term without numbers. */
export function numbersOf(term: Term, frame: Frame, of: Shown) {
  const [facts = [], words] = NUMBERS[term] ?? [];
  const said = words && `Step ${frame.step}: ${words(frame, of)}.`;
  return missing(frame.model, ...facts) || said || "";
}

/** The floating card. */
export class TermCard extends Part {
  name = h("strong");
  meaning = h("span");
  numbers = h("p.muted");
  link = h("a", { target: "_blank", rel: "noopener" });
  more = h("div.line", this.numbers, this.link);
  element = h(
    "div.card",
    { role: "dialog", "aria-label": "Term", hidden: true },
    h("p", this.name, this.meaning),
    this.more,
  );
  #of: HTMLElement | null = null;
  /** Stands where a painted word is, and the event that was there. */
  #word = h("span", { style: "position: absolute; pointer-events: none", "aria-hidden": "true" });
  #at: MouseEvent | null = null;

  constructor(board: Board) {
    super(board);
    const { root, signal } = board;
    const on = (name: string, handle: (event: any) => unknown) =>
      root.addEventListener(name, handle, { signal });
    const termAt = (event: Event) => closest(event, "[data-term]");
    const isInside = (node: Node | null) =>
      !!node && (this.element.contains(node) || !!this.#of?.contains(node));
    for (const name of ["pointerover", "focusin"])
      on(name, (event) => termAt(event) && this.#open(termAt(event) as HTMLElement));
    on("pointermove", (event) => event.buttons || this.#openPainted(event));
    on("pointerout", ({ relatedTarget }: PointerEvent) => {
      if (!isInside(relatedTarget as Node) && !isInside(focused(root))) this.close();
    });
    on(
      "focusout",
      ({ relatedTarget }: FocusEvent) => isInside(relatedTarget as Node) || this.close(),
    );
    on("click", (event: MouseEvent) => {
      const term = closest(event, ".term");
      if (!term && this.#openPainted(event)) return;
      if (!term) return isInside(event.target as Node) || this.close();
      this.#open(term);
      if (!event.detail && !this.link.hidden) this.link.focus(); // Enter leads to the lesson
    });
    root.append(this.#word, this.element);
  }

  get isOpen() {
    return !this.element.hidden;
  }

  /** Opens the card of a word that is painted where the pointer is, instead of the tooltip. */
  #openPainted(event: MouseEvent) {
    const word = CanvasPainter.wordAt(event);
    if (!word) {
      if (this.#of === this.#word && event.target === this.#at?.target) this.close();
      return false;
    }
    this.board.tooltip.hide();
    if (this.isOpen && this.#word.dataset.term === word.term) return true;
    this.#at = event;
    const root = this.board.root.getBoundingClientRect();
    this.#word.dataset.term = word.term;
    Object.assign(this.#word.style, {
      left: `${word.left - root.left}px`,
      top: `${word.top - root.top}px`,
      width: `${word.width}px`,
      height: `${word.height}px`,
    });
    this.#open(this.#word);
    return true;
  }

  #open(of: HTMLElement) {
    this.#of = of;
    this.update();
    const [root, own, word] = [this.board.root, this.element, of].map((one) =>
      one.getBoundingClientRect(),
    );
    const left = Math.min(word.left - root.left, root.width - own.width - 8);
    const isAbove = word.bottom + own.height > innerHeight && word.top > own.height;
    const top = (isAbove ? word.top - own.height : word.bottom) - root.top;
    Object.assign(this.element.style, { left: `${Math.max(8, left)}px`, top: `${top}px` });
  }

  /** Writes the numbers of the step on the screen; a card whose word is gone closes. */
  update() {
    const { board } = this;
    if (!this.#of?.isConnected) return this.close();
    const isGone = (at: MouseEvent) => CanvasPainter.wordAt(at)?.term !== this.#word.dataset.term;
    if (this.#of === this.#word && this.#at && isGone(this.#at)) return this.close();
    const found = this.#of.dataset.term as Term;
    const name = found === "radix tree" && board.frame.state.isHashed ? "hash cache" : found;
    const { meaning, lesson } = terms[name];
    this.element.dataset.about = name;
    this.name.textContent = `${name[0].toUpperCase()}${name.slice(1)}: `;
    this.meaning.textContent = `${meaning.replaceAll("`", "")}.`;
    const numbers = numbersOf(found, board.frame, board);
    say(this.numbers, numbers);
    const lessons = document.body.dataset.lessons;
    const address = lessons
      ? `${lessons}${lesson}.html`
      : labAddress(`notebooks/${lesson}.ipynb`, board.project);
    hide(this.link, !address);
    hide(this.more, !address && !numbers);
    if (address) this.link.href = address;
    this.link.textContent = `Lesson ${lesson.slice(0, 2)}`;
    hide(this.element, false);
  }

  close() {
    if (this.element.contains(focused(this.element))) this.#of?.focus({ preventScroll: true });
    this.#of = null;
    hide(this.element, true);
  }
}
