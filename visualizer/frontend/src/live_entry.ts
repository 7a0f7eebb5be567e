/**
 * The exports of `live.js` and `watch.js`: a board that follows a running engine, for pages of this machine, and
 * anywidget's `render` for notebooks.
 */

import { watchInNotebook } from "./live/watch_in_notebook.ts";

export { watch } from "./live/watch.ts";

export default { render: watchInNotebook };
