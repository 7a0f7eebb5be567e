/**
 * The scheduler's seat: a step's decision with its candidates at the left; at the right what happened, and as an outline
 * below it what the reader's choice leads to. Python runs the log again with the real scheduler, so nothing is shown
 * before a choice but what was known when it was made, and what only hindsight knows is marked.
 */

import { Board } from "../board/board.ts";
import { bindKeys } from "../board/keys.ts";
import pages from "../board/pages.css";
import { patchChildren } from "../board/patch_children.ts";
import type { Answer, Ask, Candidate, Choice, Decision, Python, Question } from "../board/seat.ts";
import { Shell } from "../board/shell.ts";
import { View } from "../board/view.ts";
import type { Facts } from "../compare/compare.ts";
import { type GhostHost, GhostPanel } from "../compare/ghost_panel.ts";
import { closest, h, plural } from "../drawing/html.ts";
import { spansOf, wordNodes } from "../drawing/words_html.ts";
import { LogReader } from "../host/log_reader.ts";
import { load } from "../host/widget.ts";
import { duration } from "../model/duration.ts";
import type { Model } from "../model/model.ts";
import { askOf } from "./asking.ts";
import { candidateElement } from "./candidates.ts";
import { HelpedBox } from "./helped_box.ts";
import { PromptBox } from "./prompt_box.ts";
import css from "./seat.css";
import { SettingsBox } from "./settings_box.ts";

const US_PER_MS = 1000;

/** Shows the seat in place of a board, at the board's step, until the reader goes back. */
export function openSeat(board: Board, python: Python) {
  const page = new SeatPage(board, askOf(python));
  board.root.hidden = true;
  board.root.after(page.root);
  page.layout();
  page.root.focus({ preventScroll: true });
  return page.sitAt(board.store.step);
}

export class SeatPage extends Shell implements GhostHost {
  board: Board;
  askPython: Ask;
  step = 0;
  answer: Answer = { done: false };
  /** The decision on show among those of the step. */
  at = 0;
  /** What was chosen last, and the gains of all choices of this step, by choice. */
  chosen = "";
  gains: Map<string, number> = new Map();
  /** What the picture shows: the two runs, once there is a choice. */
  models: Model[];
  facts: Facts;
  /** The log of the choice. */
  log: Uint8Array | null = null;
  views = [new View(), new View()];
  ghost: GhostPanel | null = null;
  heading = h("h2.question");
  list = h("div.candidates", { role: "radiogroup", "aria-label": "Candidates" });
  said = h("p.sentence", { role: "status" });
  picture = h("div.picture");
  note = h("p.small.muted");
  where = h("span.small.muted");
  nextStep = this.#turn("next");
  previousStep = this.#turn("previous");
  settings = new SettingsBox((choice) => this.choose(choice));
  helped = new HelpedBox((question, onAnswer) => this.ask(question, onAnswer));
  prompt: PromptBox;
  #ends: AbortController;
  #asking = new AbortController();

  constructor(board: Board, ask: Ask) {
    const ends = new AbortController();
    board.signal.addEventListener("abort", () => ends.abort());
    const options = { signal: ends.signal, theme: board.fixedTheme };
    super(board.root.parentElement as HTMLElement, options, {
      name: ".compare.seat",
      label: "The scheduler's seat",
      tabindex: "0",
      css: pages + css,
    });
    this.#ends = ends;
    this.board = board;
    this.askPython = ask;
    this.models = [board.model, board.model];
    this.facts = alone();
    this.prompt = new PromptBox(this);
    const key = (name: string) => h("kbd", name);
    this.root.append(
      h(
        "header.flow.small",
        h("span", h("strong", "You are the scheduler"), this.#about()),
        h("button.back", { click: () => this.close() }, "Back to the board ", key("Esc")),
      ),
      this.heading,
      h(
        "div.two",
        this.list,
        h(
          "div.outcome",
          this.said,
          legend(),
          this.picture,
          this.settings.element,
          this.prompt.element,
          h(
            "button.small",
            { "data-act": "helped", click: () => this.helped.start() },
            "What would have helped? ",
            key("H"),
          ),
          this.helped.element,
        ),
      ),
      h(
        "footer.flow.small.muted",
        h(
          "span",
          "From your choice on, the scheduler’s own rules decide; requests arrive at the same times and get the same answers. What clients got does not change. ",
          this.note,
        ),
        h("span.turns.flow", this.where, this.previousStep, this.nextStep),
      ),
    );
    bindKeys(this.root, {
      Escape: () => this.close(),
      ArrowUp: () => this.neighbour(-1),
      ArrowDown: () => this.neighbour(1),
      n: () => this.#next(1),
      p: () => this.#next(-1),
      h: () => this.helped.start(),
      ...Object.fromEntries(
        [1, 2, 3, 4, 5, 6, 7, 8, 9].map((digit) => [digit, () => this.chooseNumber(digit - 1)]),
      ),
    });
    for (const view of this.views) view.store.listen(() => this.render(), ends.signal);
  }

  /** What the engine of the log has. */
  #about() {
    const { requests, settings, lastStep } = this.board.model;
    const { max_batch_size: seats, num_blocks: blocks, block_size: size } = settings;
    return ` · ${plural(requests.length, "request")}, ${plural(seats, "seat")}, ${plural(blocks, "block")} of ${plural(size, "token")} · ${plural(lastStep, "step")}`;
  }

  #turn(to: "next" | "previous") {
    const click = () => this.#next(to === "next" ? 1 : -1);
    const label = to === "next" ? "Next decision " : "Previous decision ";
    return h("button", { click, "data-turn": to }, label, h("kbd", to === "next" ? "N" : "P"));
  }

  get decision(): Decision | undefined {
    return this.answer.decisions?.[this.at];
  }

  get context() {
    const model = this.models[0];
    return { model, theme: this.theme, selected: this.views[0].store.selected };
  }

  /** The words of Python as nodes. */
  words(words: (string | number)[], model: Model = this.board.model) {
    return wordNodes(spansOf(words, model), { ...this.context, model });
  }

  /** Sits down at a step; `at` is the decision to show, -1 the last. */
  async sitAt(step: number, at = 0) {
    this.step = step;
    this.chosen = "";
    this.gains.clear();
    this.models = [this.board.model, this.board.model];
    this.facts = alone();
    this.root.dataset.ready = "false";
    this.heading.replaceChildren(`Step ${step}: asking Python`);
    this.list.replaceChildren();
    this.settings.element.hidden = true;
    const answer = await this.ask({ seat: "decisions", step });
    if (!answer) return;
    this.answer = answer;
    const count = answer.decisions?.length ?? 0;
    this.at = Math.max(0, at < 0 ? count - 1 : at);
    if (answer.settings) this.settings.show(answer.settings);
    this.settings.element.hidden = !answer.settings;
    this.note.textContent = answer.note ?? "";
    this.root.dataset.ready = answer.error ? "error" : "true";
    this.draw();
  }

  /** Asks Python; null if the reader has asked something else meanwhile. */
  async ask(question: Question, onAnswer?: (answer: Answer) => void) {
    this.#asking.abort();
    this.#asking = new AbortController();
    const signal = AbortSignal.any([this.signal, this.#asking.signal]);
    try {
      const answer = await this.askPython(question, signal, onAnswer);
      return signal.aborted ? null : answer;
    } catch (error) {
      if (signal.aborted) return null;
      return { done: true, error: `Python does not answer: ${(error as Error).message}` } as Answer;
    }
  }

  /** The next or previous decision, of this step or of another. */
  #next(by: 1 | -1) {
    const count = this.answer.decisions?.length ?? 0;
    if (this.at + by >= 0 && this.at + by < count) {
      this.at += by;
      this.chosen = "";
      return this.draw();
    }
    const step = by > 0 ? this.answer.next : this.answer.previous;
    if (step != null) return this.sitAt(step, by > 0 ? 0 : -1);
  }

  neighbour(by: number) {
    const { candidates = [] } = this.decision ?? {};
    const now = candidates.findIndex(({ choice }) => keyOf(choice) === this.chosen);
    const next = now < 0 ? (by > 0 ? 0 : candidates.length - 1) : now + by;
    this.chooseNumber(next);
  }

  chooseNumber(index: number) {
    const candidate = this.decision?.candidates[index];
    if (candidate) this.choose(candidate.choice);
  }

  /** Lets the scheduler go on from a choice, and draws what comes of it. */
  async choose(choice: Choice) {
    this.chosen = keyOf(choice);
    this.root.dataset.ready = "false";
    this.said.textContent = "The scheduler goes on from your choice";
    this.writeCandidates();
    const answer = await this.ask({ seat: "take", step: this.step, choice });
    if (!answer) return;
    const { consequence, facts, a, b } = answer;
    if (answer.error || !consequence || !facts || !a || !b) {
      this.said.textContent = answer.error ?? "";
      this.root.dataset.ready = "error";
      return;
    }
    const readers = [new LogReader(a), new LogReader(b)];
    await Promise.all(readers.map((reader) => reader.follow(() => {})));
    if (this.chosen !== keyOf(choice) || this.signal.aborted) return;
    this.models = readers.map(({ model }) => model);
    this.facts = facts;
    this.log = b;
    const [before, after] = consequence.busy_ms;
    this.gains.set(this.chosen, after - before);
    patchChildren(this.said, this.words(consequence.words, this.models[0]));
    Object.assign(this.root.dataset, { busy: `${before} ${after}`, ready: "true" });
    this.drawGhost();
    this.writeCandidates();
  }

  /** Shows another decision. */
  draw() {
    const { decision, answer, step } = this;
    const { decisions = [], next, previous } = answer;
    const lead = h("strong", `Step ${step}: `);
    const none =
      answer.error ??
      "nothing is decided between two candidates. You can change what the engine has.";
    patchChildren(this.heading, [lead, ...(decision ? this.words(decision.question) : [none])]);
    this.said.textContent = decision ? "Choose one: no result is shown before." : "";
    this.where.textContent =
      decisions.length > 1 ? `decision ${this.at + 1} of ${decisions.length} in this step` : "";
    this.previousStep.disabled = this.at === 0 && previous == null;
    this.nextStep.disabled = this.at + 1 >= decisions.length && next == null;
    this.writeCandidates();
    this.drawGhost();
    this.prompt.write();
  }

  writeCandidates() {
    const { decision } = this;
    this.list.hidden = !decision;
    const rows = decision?.candidates.map((candidate, index) =>
      candidateElement(candidate, index, {
        page: this,
        isChosen: keyOf(candidate.choice) === this.chosen,
        gain: this.gainWords(candidate),
        choose: () => this.choose(candidate.choice),
      }),
    );
    const hadFocus = this.list.contains(document.activeElement);
    this.list.replaceChildren(...(rows ?? []));
    if (hadFocus) this.root.focus({ preventScroll: true });
    Object.assign(this.root.dataset, {
      step: this.step,
      kind: decision?.kind ?? "",
      chosen: this.chosen,
    });
  }

  /** "25 ms sooner", once it is known. */
  gainWords({ choice, happened }: Candidate) {
    if (happened) return "what happened";
    const gain = this.gains.get(keyOf(choice));
    if (gain === undefined) return "";
    if (!gain) return "as long";
    return `${duration(Math.abs(gain) * US_PER_MS)} ${gain < 0 ? "less" : "more"}`;
  }

  drawGhost() {
    this.ghost = new GhostPanel(this);
    this.picture.replaceChildren(this.ghost.element);
    this.render();
  }

  render() {
    if (!this.ghost || !this.laidOutFor) return;
    const unit = 1;
    this.root.dataset.columns = this.laidOutFor >= 980 ? "2" : "1";
    if (this.picture.clientWidth) this.ghost.draw(unit);
  }

  layout() {
    super.layout();
    this.render();
  }

  // What the picture asks of its page

  /** Opens a step: on the board that the reader came from or, of the choice, on a board of its own. */
  show(run: "a" | "b", place: { step?: number; selected?: number | null } = {}) {
    const { step, selected } = place;
    if (run === "b" && this.log) return this.#openChoice(this.log, place);
    this.close();
    if (step !== undefined) this.board.goTo(step);
    if (selected !== undefined) this.board.select(selected);
  }

  #openChoice(log: Uint8Array, place: { step?: number; selected?: number | null }) {
    const back = () => {
      this.endInside();
      host.remove();
      this.root.hidden = false;
      this.layout();
      this.root.focus({ preventScroll: true });
    };
    const host = h("div", h("button", { click: back }, "Back to the scheduler’s seat"));
    const signal = this.endInside();
    this.signal.addEventListener("abort", () => host.remove());
    this.root.hidden = true;
    this.root.after(host);
    const about = { title: "The run with your choice", caption: "" };
    return load(new Board(host, { signal, theme: this.fixedTheme, about }), log, place);
  }

  toggleTable() {}

  clicked(event: Event) {
    const request = closest(event, "[data-request]")?.dataset.request;
    if (request) this.views[0].store.set({ selected: Number(request) });
    return undefined;
  }

  close() {
    this.#ends.abort();
    this.board.root.hidden = false;
    this.board.layout();
    this.board.root.focus({ preventScroll: true });
  }
}

const keyOf = (choice: Choice) => JSON.stringify(choice);

/** The facts of a run that is compared with nothing. */
const alone = (): Facts => ({
  names: ["the run", "yours"],
  axis: "time",
  verdict: "",
  note: null,
  settings: [],
  inputs: [],
  difference: null,
  renumbered: [],
  unmatched: [[], []],
  end_noise: { share: 0, ms: 0 },
  totals: [],
  rows: [],
  paired: 0,
});

function legend() {
  const entry = (form: string, words: string) =>
    h("li.line", h("i", { class: form, "aria-hidden": "true" }), words);
  return h(
    "ul.how-to-read.flow.small.muted",
    { "aria-label": "How to read it" },
    entry("solid", "what happened"),
    entry("outline", "your choice"),
    entry("sooner", "ends sooner"),
    entry("later", "ends later"),
  );
}
