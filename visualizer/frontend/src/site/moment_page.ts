/** Goes on from the page of a moment to the board. The page exists for its preview picture. */

import { one } from "./boards.ts";

const link = one("#there") as HTMLAnchorElement;
location.replace(location.hash ? link.href.replace(/#.*/, location.hash) : link.href);
