/** The exports of `board.js`: `mount` for exported pages, and anywidget's `render` for notebooks. */

import type { Widget } from "./host/notebook.ts";
import widget, { mount } from "./host/widget.ts";
import { watchInNotebook } from "./live/watch_in_notebook.ts";

export { mount };

export default {
  render: (context: Widget) =>
    (context.model.get("live") ? watchInNotebook : widget.render)(context),
};
