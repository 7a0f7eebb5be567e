/** The exports of `board.js`: `mount` for exported pages, and anywidget's `render` for notebooks. */

export { default, mount } from "./host/widget.ts";
