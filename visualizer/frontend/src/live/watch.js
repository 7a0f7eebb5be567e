/** Entry points of a live board: for a page that reads the feed itself, and for a notebook whose kernel does. */

import { Board } from "../board/board.js";
import { h } from "../drawing/html.js";
import { modelOf } from "../host/notebook.js";
import { LiveBoard } from "./live_board.js";
import { subscribe } from "./live_feed.js";

const SYNC_EVERY = 200; // ms
const PATIENCE = 5000; // ms to wait for a kernel that may be busy or gone

/**
 * Draws a running engine in `host`; returns {board, live}. `options`: url of the feed, headers() to send, whether
 * to begin with its `past`, onChange(live), limit (events kept), theme, signal.
 */
export function watch(
  host,
  {
    url = "/events",
    headers,
    past,
    onChange,
    limit,
    signal = new AbortController().signal,
    ...options
  },
) {
  const board = new Board(host, { ...options, signal });
  const live = new LiveBoard(board, { onChange, limit, rejoin: () => rejoin() });
  const onMessage = (message) => live.receive(message);
  const rejoin = subscribe(url, { headers, past, signal, onMessage });
  return { board, live };
}

/**
 * anywidget's `render` for `visualizer.watch`. The kernel has the connection, because the browser may not be
 * able or allowed to reach the server. Messages sent before a view exists are lost, so the view sends hello first.
 */
export async function watchInNotebook({ model, el, signal, host }) {
  const ending = signal ?? new AbortController().signal;
  const traits = await modelOf(model, host, model.get("feed"));
  if (ending.aborted) return;
  const me = Math.random().toString(36).slice(2);
  let timer = null;
  let shown = null; // not written to the widget model yet, where the kernel may set its own state meanwhile
  const sync = ({ step, selected }) => {
    shown = { step, selected, following: live.following };
    if (timer) return;
    timer = setTimeout(() => {
      timer = null;
      traits.set("shown", shown);
      traits.save_changes();
      board.root.dataset.synced = `${shown.step} ${shown.following}`;
    }, SYNC_EVERY);
  };
  const board = new Board(el, { signal: ending, onChange: (state) => sync(state) });
  const hello = () => traits.send({ hello: me });
  const live = new LiveBoard(board, {
    rejoin: hello,
    onChange: ({ shows }) => shows && sync(board.state()),
  });
  const patience = setTimeout(() => {
    board.showMessage(
      "waiting",
      h("h2", {}, "The kernel does not answer."),
      h(
        "p",
        {},
        "It is busy, or this is a saved notebook. Run the cell again to watch the server.",
      ),
    );
  }, PATIENCE);
  const hear = (message) => {
    clearTimeout(patience);
    if (message.type === "go") go(message);
    else if (!message.to || message.to === me) live.receive(message);
  };
  const go = ({ following, ...place }) => {
    if (!live.shows) return;
    board.restore(place);
    if (following != null) live.follow(following);
  };
  traits.on("msg:custom", hear);
  ending.addEventListener("abort", () => {
    clearTimeout(patience);
    traits.off("msg:custom", hear);
    traits.send({ bye: me });
  });
  hello();
}
