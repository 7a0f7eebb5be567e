/**
 * What limited the run: a sentence above the step's, and a bar under the strip. Python finds both
 * (`visualizer/reading/regimes`): a page gets them with its log, a live page by a route, a notebook from its kernel.
 */

import { Part } from "../board/part.ts";
import css from "../board/regimes.css";
import { showHelp } from "../board/seat.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { causeColour } from "../drawing/causes.ts";
import { h } from "../drawing/html.ts";
import { withTerms } from "../drawing/terms.ts";
import type { Scale } from "../drawing/time_axis.ts";
import type { Scene } from "../tour/scenes.ts";

/** steps from `first` to `last` with one limit; `cause` is what requests wait for most, `worst` its worst step */
interface Regime {
  kind: string;
  first: number;
  last: number;
  cause: string;
  worst: number;
  words: string;
  cost: string;
}

/** what `Regimes.as_dict` in Python returns */
export interface RunInWords {
  sentence: string;
  worst: number | null;
  regimes: Regime[];
  more?: boolean; // whether the log is short enough to ask for the rest:
  tour?: Scene[];
  saved?: Saving[]; // of a log that could be replayed
}

/** a run without one idea; `requests` has how much longer each would take, in us */
export interface Saving {
  idea: string;
  words: string;
  requests: Record<number, number>;
}

/** The sentence, its beginning in bold; hidden while nothing is known. */
export class RunSentence {
  lead = h("strong");
  rest = h("span");
  element: HTMLElement;

  /** `tell` opens the tour, and `help` shows what would have helped. */
  constructor(tell: () => unknown, help?: () => unknown) {
    const button = (act: string, words: string, click: () => unknown) =>
      h("button.tell", { "data-act": act, click }, words);
    this.element = h(
      "p.run",
      { hidden: true },
      h("style", css),
      this.lead,
      this.rest,
      " ",
      button("tell", "Tell me", tell),
      " ",
      help && button("help-run", "What would have helped?", help),
    );
  }

  show(sentence: string = "", more: string[] = []) {
    const end = sentence.indexOf(":") + 1;
    this.lead.replaceChildren(...h("b", ...withTerms(sentence.slice(0, end))).childNodes);
    this.rest.textContent = [sentence.slice(end), ...more].join(" ");
    this.element.hidden = !sentence;
  }
}

const BAR_HEIGHT = 40;
/** Regimes without a limit: what the run would have been without an idea is then what there is to say. */
const UNLIMITED = ["calm", "idle"];
/** The cause whose colour a regime has; calm and idle ones have none. */
const COLOUR_OF: Record<string, string> = {
  "seat-bound": "batch_full",
  burst: "batch_full",
  "memory-bound": "no_free_blocks",
  thrash: "preempted",
  "prefill-bound": "token_budget",
  queue: "unknown",
};

export class RunPanel extends Part {
  run: RunInWords | null = null;
  sentence = new RunSentence(
    () => this.board.tellMe(),
    () => showHelp(this.board),
  );
  /** Ends the answer to what would have helped. */
  ends = new AbortController();
  bar = h("div.regimes", { role: "group", "aria-label": "Regimes of the run", hidden: true });
  cursor = new CanvasPainter(h("canvas.cursor", { "aria-hidden": "true" }));
  #placed = "";

  /** Shows a run; null while nothing is known about it. A run without a limit has no bar. */
  show(run: RunInWords | null = null) {
    this.run = run;
    const { regimes = [], saved = [] } = run ?? {};
    const isLimited = regimes.some(({ kind }) => !UNLIMITED.includes(kind));
    this.sentence.show(run?.sentence, isLimited ? [] : saved.map(({ words }) => words));
    this.bar.hidden = regimes.every(({ kind }) => kind === "calm");
    this.#placed = "";
    this.bar.replaceChildren(...regimes.map((one) => this.#segment(one)), this.cursor.canvas);
  }

  /** The height of the bar in board pixels. */
  get height() {
    return this.bar.hidden ? 0 : BAR_HEIGHT;
  }

  /** Places the regimes on the scale of the strip; `long` says that the strip is an overview. */
  place(scale: Scale, long: boolean) {
    if (!this.run || this.bar.hidden) return;
    const { unit, theme, store } = this.board;
    const x = (scale.x(store.step) + scale.end(store.step)) / 2;
    const painter = this.cursor.begin(scale.right, this.height, unit, theme);
    if (!long && x >= scale.left && x <= scale.right)
      painter.fill(Math.round(x), 0, 1, this.height, theme.ink);
    const key = [scale.left, scale.right, scale.x(0), scale.width, unit, theme.name].join();
    if (key === this.#placed) return;
    this.#placed = key;
    this.bar.style.height = `${this.height * unit}px`;
    this.run.regimes.forEach(({ kind, first, last }, index) => {
      const segment = this.bar.children[index] as HTMLElement;
      const left = Math.max(scale.left, scale.x(first));
      const right = Math.min(scale.right, scale.end(last));
      segment.hidden = right <= left;
      segment.style.left = `${left * unit}px`;
      segment.style.width = `${Math.max(1, right - left) * unit}px`;
      const cause = COLOUR_OF[kind];
      segment.style.setProperty("--cause", cause ? causeColour(theme, cause) : theme.rule);
    });
  }

  #segment(regime: Regime) {
    const { kind, first, last, words, cost, worst } = regime;
    const steps = first === last ? `step ${first}` : `steps ${first} to ${last}`;
    const { tooltip } = this.board;
    return h(
      "button.regime",
      {
        "data-kind": kind,
        "aria-label": `${kind} ${cost}, ${steps}. ${words}`,
        click: () => this.board.goTo(worst),
        pointermove: (event: PointerEvent) =>
          tooltip.show(event, () => [`${kind}, ${steps}`, words, cost]),
        pointerleave: () => tooltip.hide(),
      },
      h("i"),
      h("span", h("strong", kind), h("span.muted", ` ${cost}`)),
    );
  }
}
