/**
 * What would have helped: Python runs the whole log again with one setting changed at a time, and names the best. In the
 * seat, and below the run's sentence on the board.
 */

import type { Board } from "../board/board.ts";
import type { Answer, Ask, Python, Question } from "../board/seat.ts";
import { h } from "../drawing/html.ts";
import { askOf } from "./asking.ts";

/** Asks Python; null once the answer is of no more interest. */
type AskOnce = (question: Question, onAnswer: Parameters<Ask>[2]) => Promise<Answer | null>;

export class HelpedBox {
  ask: AskOnce;
  said = h("p", { role: "status" });
  list = h("ol");
  element = h("section.would-help.small", this.said, this.list);

  constructor(ask: AskOnce) {
    this.ask = ask;
  }

  async start() {
    let tried = 0;
    this.list.replaceChildren();
    this.said.textContent = "Running the whole log again";
    const answer = await this.ask({ seat: "helped" }, ({ words }) => {
      tried += 1;
      this.said.textContent = `${tried} tried, the last one: ${words}`;
    });
    if (!answer) {
      this.said.textContent = `Stopped after ${tried}.`;
      return;
    }
    const said = answer.error ?? answer.said ?? "";
    this.said.textContent = said.charAt(0).toUpperCase() + said.slice(1);
    const { best = [] } = answer;
    this.list.replaceChildren(
      ...best.map(({ words }) => {
        const [change, ...numbers] = words.split(":");
        return h("li", h("strong", change, ":"), numbers.join(":"));
      }),
    );
    if (!answer.error && !best.length) this.said.textContent += " None of them makes that shorter.";
  }
}

/** Answers below the run's sentence, until `signal` aborts. */
export function answerOnBoard({ run }: Board, python: Python, signal: AbortSignal) {
  const ask = askOf(python);
  const failed = ({ message }: Error) => ({ done: true, error: message }) as Answer;
  const box = new HelpedBox((question, onAnswer) =>
    ask(question, signal, onAnswer).catch((error) => (signal.aborted ? null : failed(error))),
  );
  const ideas = run.run?.saved ?? [];
  box.element.append(...ideas.map(({ words }) => h("p.muted", words)));
  run.sentence.element.after(box.element);
  signal.addEventListener("abort", () => box.element.remove());
  return box.start();
}
