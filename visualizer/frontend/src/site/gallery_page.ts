/** A scenario's page: its board. A link to one of its moments goes by that moment's own page, which has a preview. */

import { writeAddress } from "../host/address.ts";
import { fetchBytes } from "../host/log_bytes.ts";
import { drawPageBoard, namedIn, one } from "./boards.ts";

const host = one("main > .board");
const { log, title, opening, run } = namedIn(host);
const moments = new Set((host.dataset.moments ?? "").split(" "));

const board = await drawPageBoard(host, await fetchBytes(log), {
  ...opening,
  run,
  linkOf: (state) => {
    const own = `${host.dataset.folder}/${state.step}.html`;
    const page = moments.has(`${state.step}`) ? new URL(own, location.href) : location.href;
    return `${page}`.replace(/#.*/, "") + writeAddress(state);
  },
});
// The page has the heading. The board needs the title for its postcards only.
board.about = { title, caption: "" };
