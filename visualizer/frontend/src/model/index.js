/**
 * The data side of the front end: a log in, pictures' facts and words out. No DOM here.
 * `visualizer/frontend/README.md` documents every name and shape.
 */

export { State } from "./fold.js";
export { parseLog } from "./lines.js";
export { LogError } from "./log.js";
export { Model } from "./model.js";
export { openingRequest, openingStep } from "./opening.js";
export { compose, sentence } from "./sentence.js";
export { plain, reasonWords } from "./words.js";
