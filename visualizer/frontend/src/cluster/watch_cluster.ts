/** A live cluster on a page, which reads the gateway's feed itself. */

import { takeKeysOfPage } from "../board/keys.ts";
import type { ThemeName } from "../board/theme.ts";
import type { FeedMessage } from "../live/live_board.ts";
import { subscribe } from "../live/live_feed.ts";
import { ClusterBoard } from "./cluster_board.ts";
import { LiveCluster } from "./live_cluster.ts";

/**
 * Draws a running cluster in `host`; returns {board, live}. `options`: url of the feed, headers() to send,
 * onChange(live), limit (lines kept), theme, signal.
 */
export function watchCluster(
  host: HTMLElement,
  {
    url = "/events",
    headers,
    limit,
    onChange,
    theme,
    signal = new AbortController().signal,
  }: {
    url?: string;
    headers?: () => Record<string, string>;
    limit?: number;
    signal?: AbortSignal;
    theme?: ThemeName;
    onChange?: (live: LiveCluster) => void;
  },
) {
  const board = new ClusterBoard(host, { signal, theme });
  takeKeysOfPage(board.root, signal);
  const live = new LiveCluster(board, { onChange, limit, rejoin: () => rejoin() });
  const onMessage = (message: FeedMessage) => live.receive(message);
  const rejoin = subscribe(url, { headers, past: true, signal, onMessage });
  return { board, live };
}
