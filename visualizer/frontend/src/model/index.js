/**
 * The data side of the front end: reads a log and computes the facts and sentences for the pictures. No DOM.
 * `visualizer/frontend/README.md` explains it.
 */

export { State } from "./fold.js";
export { parseLog } from "./lines.js";
export { LogError } from "./log.js";
export { reasonWords } from "./messages.js";
export { Model } from "./model.js";
export { openingRequest, openingScores, openingStep, SEARCHED } from "./opening.js";
export { compose, sentence } from "./sentence.js";
export { plain } from "./words.js";
