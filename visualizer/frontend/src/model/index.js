/**
 * The data side of the front end: a log in, pictures' facts and words out. No DOM here.
 * `visualizer/frontend/README.md` documents every name and shape.
 */

export { LogError } from "./log.js";
export { parseLog } from "./lines.js";
export { State } from "./fold.js";
export { Model } from "./model.js";
export { compose, sentence } from "./sentence.js";
export { openingStep, openingRequest } from "./opening.js";
export { reasonWords } from "./messages.js";
export { plain } from "./words.js";
