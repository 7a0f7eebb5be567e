/** The exports of `live.js`, which the server's live page loads: the board, and what only that page needs. */

export { createParser } from "eventsource-parser";
export { paintSwatch } from "./drawing/marks.js";
export { OwnRequest } from "./live/own_request.js";
export { ProjectorView } from "./live/projector.js";
export { watch } from "./live/watch.js";
export { duration } from "./model/duration.js";
