/** The front page's run: four people and their requests, and what each of them reads and writes in a step. */

import { Model } from "../model/model.ts";
import type { RequestSpan } from "../model/request_spans.ts";

/** In the order of their lanes; the last is the visitor. */
export const NAMES = ["Ada", "Bo", "Cleo", "You"];
export const YOU = 3;
export const PACE = 240; // ms per column: slower than the engine, so that the words can be read

/** What a request does in a step: it reads tokens of its prompt, or again, or it writes the next token. */
export interface Cell {
  step: number;
  reads: number; // tokens; 0: it writes
  isAgain: boolean; // whether some of them had been computed before
  word: string | null; // the token that it got at the end of the step
}

export class Run {
  model: Model;
  #cells: Map<number, Map<number, Cell>> = new Map();

  constructor(model: Model = new Model()) {
    this.model = model;
  }

  /** Whether its engine has finished. */
  isOver = false;
  /** Whether it is the site's recording, and no run of the page's engine. */
  isRecorded = false;

  static of(bytes: Uint8Array) {
    const run = new Run();
    run.read(bytes);
    run.isOver = true;
    return run;
  }

  read(bytes: Uint8Array) {
    this.model.read(bytes);
    this.#cells.clear();
  }

  /** The last finished step. */
  get lastStep() {
    const { stepCount, lastStep } = this.model;
    const isOver = stepCount > 0 && this.model.stepInfo(lastStep).status === "finished";
    return stepCount - Number(!isOver);
  }

  get you(): RequestSpan | null {
    return this.person(YOU);
  }

  /** The request of a person, once it has arrived. */
  person(place: number): RequestSpan | null {
    return this.model.requests.find(({ label }) => label === NAMES[place]) ?? null;
  }

  /** Whose request it is. */
  placeOf(id: number | null | undefined) {
    return NAMES.indexOf(this.model.request(id)?.label ?? "");
  }

  /** What a request does in a step, or null. */
  cell(request: RequestSpan | null, step: number): Cell | null {
    return (request && this.#cellsOf(step).get(request.id)) ?? null;
  }

  /** The tokens that a request has got by the end of a step. */
  written(request: RequestSpan, step: number) {
    const later = request.tokenSteps.findIndex((one) => one > step);
    return later < 0 ? request.tokenSteps.length : later;
  }

  /** Its text at the end of a step. */
  text(request: RequestSpan, step: number) {
    const { texts, promptLength } = request;
    return texts.slice(promptLength, promptLength + this.written(request, step)).join("");
  }

  /** The numbers of the steps up to one. */
  stepsTo(now: number) {
    const { firstStep } = this.model;
    return Array.from(
      { length: Math.max(0, now - firstStep + 1) },
      (_, index) => firstStep + index,
    );
  }

  /** How long a step took, in microseconds; NaN if the log has no times. */
  took(step: number) {
    const { start, end } = this.model.measures;
    const index = step - this.model.firstStep;
    return end.at(index) - start.at(index);
  }

  #cellsOf(step: number): Map<number, Cell> {
    const kept = this.#cells.get(step);
    if (kept) return kept;
    const cells: Map<number, Cell> = new Map();
    const { scheduled } = this.model.stepInfo(step);
    const rows = scheduled === null ? [] : this.model.event(scheduled).rows;
    for (const [id, start, count] of rows) {
      const span = this.model.requestSpan(id);
      const reads = count > 1 || start < span.promptLength ? count : 0;
      const lost = span.preemptions.filter((one) => one.step <= step);
      const isAgain = lost.some(({ computed }) => start < computed);
      const at = span.tokenSteps.indexOf(step);
      const word = at < 0 ? null : (span.texts[span.promptLength + at] ?? "");
      cells.set(id, { step, reads, isAgain, word });
    }
    this.#cells.set(step, cells);
    return cells;
  }
}
