/** What the built module hands out: `mount` and `watch` for pages, anywidget's `render` for notebooks. */

import { watch, watchInNotebook } from "./live_doors.js";
import widget, { mount } from "./widget.js";

export { mount, watch };

export default {
  render: (context) => (context.model.get("live") ? watchInNotebook : widget.render)(context),
};
