/** The exports of `compare.js`: `mount` for pages that compare two runs, and anywidget's `render`. */

import { mountComparison, render } from "./compare/mount_comparison.ts";

export { mountComparison as mount };

export default { render };
