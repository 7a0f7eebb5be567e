/** The exports of the built module: functions for pages, and anywidget's `render` for notebooks. */

import { paintSwatch } from "./drawing/marks.js";
import widget, { mount } from "./host/widget.js";
import { OwnRequest } from "./live/own_request.js";
import { watch, watchInNotebook } from "./live/watch.js";
import { duration } from "./model/duration.js";

export { createParser } from "eventsource-parser";
export { duration, mount, OwnRequest, paintSwatch, watch };

export default {
  render: (context) => (context.model.get("live") ? watchInNotebook : widget.render)(context),
};
