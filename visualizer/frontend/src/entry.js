/** The exports of `board.js`: `mount` for exported pages, and anywidget's `render` for notebooks. */

import widget, { mount } from "./host/widget.js";
import { watchInNotebook } from "./live/watch_in_notebook.js";

export { mount };

export default {
  /** @param {import("./host/notebook.js").Widget} context */
  render: (context) => (context.model.get("live") ? watchInNotebook : widget.render)(context),
};
