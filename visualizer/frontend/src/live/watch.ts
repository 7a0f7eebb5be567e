/** A live board on a page, which reads the server's feed itself. */

import { Board, type BoardOptions } from "../board/board.ts";
import { type FeedMessage, LiveBoard } from "./live_board.ts";
import { subscribe } from "./live_feed.ts";

/**
 * Draws a running engine in `host`; returns {board, live}. `options`: url of the feed, headers() to send, whether
 * to begin with its `past`, onChange(live), limit (events kept), theme, signal.
 */
export function watch(
  host: HTMLElement,
  {
    url = "/events",
    headers,
    past,
    onChange,
    limit,
    signal = new AbortController().signal,
    ...options
  }: Partial<Omit<BoardOptions, "onChange">> & {
    url?: string;
    headers?: () => Record<string, string>;
    past?: boolean;
    limit?: number;
    onChange?: (live: LiveBoard) => void;
  },
) {
  const board = new Board(host, { ...options, signal });
  const live = new LiveBoard(board, { onChange, limit, rejoin: () => rejoin() });
  const onMessage = (message: FeedMessage) => live.receive(message);
  const rejoin = subscribe(url, { headers, past, signal, onMessage });
  return { board, live };
}
