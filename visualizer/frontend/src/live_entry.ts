/** The exports of `live.js`: a board that follows a running engine, for pages of this machine. */

export { watch } from "./live/watch.ts";
