/** A live board on a page, which reads the server's feed itself. */

import { Board } from "../board/board.js";
import { LiveBoard } from "./live_board.js";
import { subscribe } from "./live_feed.js";

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
