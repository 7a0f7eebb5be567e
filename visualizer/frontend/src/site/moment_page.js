/** Goes on from the page of a moment to the board. The page exists for its preview picture. */

import { one } from "./boards.js";

const link = /** @type {HTMLAnchorElement} */ (one("#there"));
location.replace(location.hash ? link.href.replace(/#.*/, location.hash) : link.href);
