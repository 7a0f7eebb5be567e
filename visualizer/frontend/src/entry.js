/** What the built module hands out: `mount`, `watch` and `duration` for pages, anywidget's `render` for notebooks. */

import { duration } from "./duration.js";
import { watch, watchInNotebook } from "./live_doors.js";
import widget, { mount } from "./widget.js";

export { duration, mount, watch };

export default {
  render: (context) => (context.model.get("live") ? watchInNotebook : widget.render)(context),
};
