/**
 * The rows of the projector's view: one per person, so that a class finds its names where they were. A person's
 * requests follow each other in the row; one that overlaps with another has a row of its own. Pure functions.
 *
 * @typedef {import("../model/request_spans.js").RequestSpan} RequestSpan
 * @typedef {import("../model/model.js").Model} Model
 *
 * @typedef {object} Row
 * @property {string} name
 * @property {RequestSpan[]} spans  in order of arrival
 */

/**
 * The rows of a model at a step, in order of first appearance: at most `room`, first those with a live request, then
 * those whose last request ended most recently. `hidden` counts the others.
 *
 * @param {Model} model
 * @param {number} step
 * @param {number} room
 * @returns {{rows: Row[], hidden: number}}
 */
export function peopleAt(model, step, room) {
  /** @type {Row[]} */
  const rows = [];
  /** @type {Map<string, Row[]>} */
  const byPerson = new Map();
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

/** The row's newest request that has arrived by then. @param {Row} row @returns {RequestSpan} */
export const newest = ({ spans }) => spans[spans.length - 1];

/** A request's output up to a step. @param {RequestSpan} span @param {number} step */
export function outputAt({ texts, tokenSteps, promptLength }, step) {
  let count = tokenSteps.length;
  while (count && tokenSteps[count - 1] > step) count -= 1;
  return texts.slice(promptLength, promptLength + count).join("");
}

/** Whether the request had ended when another arrived before the step `arrived`. */
const hasEnded = (/** @type {RequestSpan} */ { finished }, /** @type {number} */ arrived) =>
  !!finished && finished.step < arrived;

/** The last step by `step` in which the row had a live request. @param {Row} row @param {number} step */
function lastStep(row, step) {
  return Math.min(step, newest(row).finished?.step ?? Number.POSITIVE_INFINITY);
}
