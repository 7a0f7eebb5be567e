/** A live board on a page, which reads the server's feed itself. */

import { Board, type BoardOptions } from "../board/board.ts";
import type { RunInWords } from "../panels/run_panel.ts";
import { tellFrom } from "../tour/open_tour.ts";
import { followRun } from "./follow_run.ts";
import type { LiveOptions } from "./live.ts";
import { LiveBoard } from "./live_board.ts";
import { subscribe } from "./live_feed.ts";

/**
 * Draws a running engine in `host`; returns {board, live}. `url` is that of the feed, `headers()` are sent to it, and with
 * `past` it begins with the events that the server has kept.
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
  }: Partial<Omit<BoardOptions, "onChange">> &
    Omit<LiveOptions<LiveBoard>, "rejoin"> & {
      url?: string;
      headers?: () => Record<string, string>;
      past?: boolean;
    },
) {
  const board = new Board(host, { tell: tellFrom(url, headers), ...options, signal });
  const live = new LiveBoard(board, { onChange, limit, rejoin: () => rejoin() });
  const rejoin = subscribe(url, { headers, past, signal, onMessage: live.receive.bind(live) });
  const size = () => board.model?.lastStep ?? 0;
  followRun<RunInWords>(url, { headers, signal, size, show: (run) => board.showRun(run) });
  return { board, live };
}
