/**
 * A prediction game: the board up to a decision, a question about it, and then the step that shows the answer.
 *
 * The page never has more of the log than it shows. The kernel checks an answer and sends the next step; see
 * `prediction.py`.
 */

import { Board } from "../board/board.ts";
import css from "../board/pages.css";
import { patchChildren } from "../board/patch_children.ts";
import { Shell } from "../board/shell.ts";
import { View } from "../board/view.ts";
import { closest, h } from "../drawing/html.ts";
import { chip, spansOf, wordNodes } from "../drawing/words_html.ts";
import type { WidgetModel } from "../host/kernel_sync.ts";
import { fromBase64 } from "../host/log_bytes.ts";
import { hear, type Load, modelOf, type Widget } from "../host/notebook.ts";
import { saveWith } from "../host/saved_state.ts";

/** requests are numbers */
type Words = (string | number)[];

/** see `prediction.py` */
interface Question {
  number: number;
  of: number; // questions in all
  step: number;
  about?: number | null; // a request
  kind: string;
  form: "requests" | "prefixes" | "yes" | "number";
  words: Words;
  choices: number[];
  texts: string[]; // of prefixes
  unit: string; // of a number
}

/** empty until there is an answer */
type Verdict = { right?: boolean; words: Words; why: Words[]; answer?: number[] };

const PATIENCE = 4000; // ms to wait for a kernel that may be busy or gone

/** anywidget's `render` of a prediction. */
export const predictionInNotebook =
  (load: Load): ((widget: Widget) => Promise<void>) =>
  async ({ model, el, signal = new AbortController().signal, host }) => {
    const traits = await modelOf(model, host, model.get("game"));
    saveWith(model.widget_manager);
    const page = new PredictionPage(el, { traits, load, signal });
    await page.follow();
  };

class PredictionPage extends Shell {
  traits: WidgetModel;
  load: Load;
  progress = h("p.place.small.muted");
  form = h("form.ask", { submit: (event) => this.submit(event) });
  said = h("div.said", { role: "status" });
  boards = h("div.so-far");
  /** The update that is due. */
  following: Promise<unknown> | null = null;
  /** Whether the reader has pressed a button. */
  acted = false;
  stateShown = "";
  log!: string;
  number!: number;
  board!: Board;
  asked?: number;

  constructor(
    host: HTMLElement,
    { traits, load, signal }: { traits: WidgetModel; load: Load; signal: AbortSignal },
  ) {
    super(host, { signal }, { name: ".predict", label: "What comes next?", css });
    this.traits = traits;
    this.load = load;
    this.root.append(this.progress, this.form, this.said, this.boards);
    for (const name of ["question", "verdict", "log", "score"])
      hear(traits, `change:${name}`, () => this.follow(), signal);
  }

  get question(): Question {
    return this.traits.get("question");
  }

  get verdict(): Verdict {
    return this.traits.get("verdict");
  }

  /** Updates the page once for several traits, which arrive one after the other. */
  follow() {
    this.following ??= Promise.resolve()
      .then(() => {
        this.following = null;
        return this.open();
      })
      .then(() => this.signal.aborted || this.write());
    return this.following;
  }

  /**
   * Shows the log as far as the page has it. Jupyter's widget manager may set an equal log again; then the board
   * stays. The next question may also be about the next step of the same log.
   */
  async open() {
    const log = this.traits.get("log");
    const { number, step, about, form, kind } = this.question;
    const { number: before, log: logBefore } = this;
    const isShown = number === before && log === logBefore;
    this.log = log;
    this.number = number;
    if (isShown) return;
    const { answer } = this.verdict;
    const selected = about ?? (form === "requests" ? answer?.[0] : undefined);
    // A board would show what the selected request finds in the cache, which is the answer.
    const secret = kind === "hit" && !answer ? about : null;
    this.boards.style.minHeight = `${this.boards.clientHeight}px`;
    this.board = new Board(this.boards, {
      signal: this.endInside(),
      view: withoutSelecting(secret, new View()),
      linkOf: () => "",
      onChange: () => this.writeVerdict(),
    });
    const chosen = secret === null ? selected : null;
    const opening = chosen === undefined ? { step } : { step, selected: chosen };
    await this.load(this.board, fromBase64(log), opening);
    this.boards.style.minHeight = "";
  }

  context() {
    const { view, model } = this.board;
    return {
      model,
      frame: model.frame(view.store.step),
      theme: this.theme,
      selected: view.store.selected,
    };
  }

  nodes(words: Words) {
    return wordNodes(spansOf(words, this.board.view.model), this.context());
  }

  /** For another width or theme. */
  render() {
    if (this.root.dataset.ready === "true" && this.board.model) this.write();
  }

  write() {
    const { question, verdict, root } = this;
    const { number, of } = question;
    const isOver = number >= of;
    const state = !of ? "empty" : isOver ? "done" : "right" in verdict ? "revealed" : "asking";
    const score = this.traits.get("score");
    const answered = number + Number(state === "revealed");
    this.progress.textContent = isOver
      ? ""
      : `Question ${number + 1} of ${of}${answered ? `, ${score} of ${answered} right` : ""}`;
    this.form.hidden = state !== "asking";
    if (state === "asking") this.ask(question);
    this.writeVerdict();
    Object.assign(root.dataset, { state, number, of, score, ready: "true" });
    root.dataset.right = `${verdict.right ?? ""}`;
    if (this.acted && state !== this.stateShown) {
      const next = state === "asking" ? this.form.querySelector("input") : this.goButton;
      next?.focus({ preventScroll: true });
    }
    this.stateShown = state;
  }

  /** Shows the question as a form: with nothing chosen, or with what the reader has chosen so far. */
  ask({ number, words, form, choices, texts, unit }: Question) {
    if (this.asked !== number) {
      this.said.replaceChildren();
      this.form.replaceChildren();
    }
    this.asked = number;
    const legend = h("legend.sentence", ...this.nodes(words));
    const fields = {
      requests: () => choices.map((id) => this.choice("checkbox", id, this.nameOf(id))),
      prefixes: () => choices.map((id, i) => this.choice("checkbox", id, texts[i])),
      yes: () => [this.choice("radio", 1, "yes"), this.choice("radio", 0, "no")],
      number: () => [
        h(
          "label",
          h("input", { type: "number", name: "answer", min: 0, required: true }),
          ` ${unit}`,
        ),
      ],
    }[form]();
    const none = form === "requests" || form === "prefixes";
    const hint = none ? h("p.note.muted", "Choose all that apply; none is possible.") : null;
    const box = h("div", { class: `choices flow ${form}` }, ...fields);
    const button = h("button.go", { type: "submit" }, "Submit");
    patchChildren(this.form, [h("fieldset", legend, box, hint), button]);
  }

  choice(type: "checkbox" | "radio", value: number, words: string | Node) {
    const required = type === "radio";
    return h("label", h("input", { type, name: "answer", value, required }), " ", words);
  }

  /** A request's name in a label; a button would take the click. */
  nameOf(id: number) {
    return h("span.chip", ...chip(id, this.context()).children);
  }

  submit(event: Event) {
    event.preventDefault();
    const answers = new FormData(this.form).getAll("answer").map(Number);
    this.acted = true;
    this.send("given", { number: this.question.number, value: answers });
  }

  clicked(event: Event) {
    if (closest(event, ".so-far")) return; // a board handles its own clicks
    if (closest(event, ".said .go")) {
      this.acted = true;
      this.send("turn", this.question.number + 1);
    }
    const named = closest(event, "[data-request]");
    if (named) this.board.select(Number(named.dataset.request));
  }

  /** Sends a value to the kernel; shows a message if no kernel answers. */
  send(name: string, value: unknown) {
    const before = [this.question, this.verdict];
    this.traits.set(name, value);
    this.traits.save_changes();
    setTimeout(() => {
      const now = [this.question, this.verdict];
      if (this.signal.aborted || now.some((one, i) => one !== before[i])) return;
      this.said.replaceChildren(
        h(
          "p",
          { "data-message": "no-kernel" },
          "The kernel does not answer. It has the rest of the log: run the cell again.",
        ),
      );
    }, PATIENCE);
  }

  writeVerdict() {
    const { number, of, words: asked } = this.question;
    const { right, words, why } = this.verdict;
    if (!this.board?.view.model && of) return;
    if (!of) {
      this.said.replaceChildren(
        h("p", "There are no questions: this log has no decision that could be predicted."),
      );
    } else if (number >= of) {
      const score = `${this.traits.get("score")} of ${of} right.`;
      this.said.replaceChildren(h("p.sentence", h("strong", score), " This is the whole log."));
    } else if (right !== undefined)
      patchChildren(this.said, [
        h("p.muted", ...this.nodes(asked)),
        h(
          "p.sentence",
          h("strong", right ? "Right: " : "Wrong. The answer is "),
          ...this.nodes(words),
          ".",
        ),
        ...why.map((line) => h("p", ...this.nodes(line))),
        h("button.go", number + 1 < of ? "Next question" : "Show the whole log"),
      ]);
  }

  /** The button that goes on. */
  get goButton(): HTMLElement | null {
    return this.said.querySelector(".go");
  }
}

/** Prevents the selection of one request in a view. */
function withoutSelecting(secret: number | null | undefined, view: View) {
  const { store } = view;
  const set = store.set.bind(store);
  if (secret !== null)
    store.set = (values) =>
      set(values.selected === secret ? { ...values, selected: null } : values);
  return view;
}
