/** A live board on a page, which reads the server's feed itself. */

import { Board } from "../board/board.js";
import { LiveBoard } from "./live_board.js";
import { subscribe } from "./live_feed.js";

/**
 * Draws a running engine in `host`; returns {board, live}. `options`: url of the feed, headers() to send, whether
 * to begin with its `past`, onChange(live), limit (events kept), theme, signal.
 *
 * @param {HTMLElement} host
 * @param {Partial<import("../board/board.js").BoardOptions> & {url?: string, headers?: () => Record<string, string>,
 *         past?: boolean, limit?: number, onChange?: (live: LiveBoard) => void}} options
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
  const onMessage = (/** @type {import("./live_board.js").FeedMessage} */ message) =>
    live.receive(message);
  const rejoin = subscribe(url, { headers, past, signal, onMessage });
  return { board, live };
}
