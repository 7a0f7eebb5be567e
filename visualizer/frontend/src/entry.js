/** What the built module hands out: `mount`, `watch` and `duration` for pages, anywidget's `render` for notebooks. */

import widget, { mount } from "./host/widget.js";
import { watch, watchInNotebook } from "./live/live_doors.js";
import { duration } from "./model/duration.js";

export { duration, mount, watch };

export default {
  render: (context) => (context.model.get("live") ? watchInNotebook : widget.render)(context),
};
