/**
 * The rows of the projector's view: one per person, so that a class finds its names where they were. A person's
 * requests follow each other in the row; one that overlaps with another has a row of its own. Pure functions.
 */

import type { Model } from "../model/model.ts";
import type { RequestSpan } from "../model/request_spans.ts";

export interface Row {
  name: string;
  spans: RequestSpan[]; // in order of arrival
}

/**
 * The rows of a model at a step, in order of first appearance: at most `room`, first those with a live request, then
 * those whose last request ended most recently. `hidden` counts the others.
 */
export function peopleAt(
  model: Model,
  step: number,
  room: number,
): { rows: Row[]; hidden: number } {
  const rows: Row[] = [];
  const byPerson: Map<string, Row[]> = new Map();
  for (const span of model.requests) {
    const arrived = span.arrived ?? model.firstStep;
    if (arrived > step) continue;
    const person = span.label || span.name;
    const own = byPerson.get(person) ?? [];
    byPerson.set(person, own);
    let row = own.find(({ spans }) => hasEnded(spans[spans.length - 1], arrived));
    if (!row) {
      row = { name: span.name, spans: [] };
      own.push(row);
      rows.push(row);
    }
    row.spans.push(span);
  }
  if (rows.length <= room) return { rows, hidden: 0 };
  const shown = new Set(
    rows.toSorted((a, b) => lastStep(b, step) - lastStep(a, step)).slice(0, room),
  );
  return { rows: rows.filter((row) => shown.has(row)), hidden: rows.length - room };
}

/** The row's newest request that has arrived by then. */
export const newest = ({ spans }: Row): RequestSpan => spans[spans.length - 1];

/** A request's output up to a step. */
export function outputAt({ texts, tokenSteps, promptLength }: RequestSpan, step: number) {
  let count = tokenSteps.length;
  while (count && tokenSteps[count - 1] > step) count -= 1;
  return texts.slice(promptLength, promptLength + count).join("");
}

/** Whether the request had ended when another arrived before the step `arrived`. */
const hasEnded = ({ finished }: RequestSpan, arrived: number) =>
  !!finished && finished.step < arrived;

/** The last step by `step` in which the row had a live request. */
function lastStep(row: Row, step: number) {
  return Math.min(step, newest(row).finished?.step ?? Number.POSITIVE_INFINITY);
}
