/**
 * The data side of the front end: reads a log and computes the facts and sentences for the pictures. No DOM.
 * `visualizer/frontend/README.md` explains it.
 */

export { State } from "./fold.ts";
export { LogError } from "./log.ts";
export { reasonWords } from "./messages.ts";
export { Model } from "./model.ts";
export { openingRequest, openingScores, openingStep, SEARCHED } from "./opening.ts";
export { compose, sentence } from "./sentence.ts";
export { plain } from "./words.ts";
