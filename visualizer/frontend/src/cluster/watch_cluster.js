/** A live cluster on a page, which reads the gateway's feed itself. */

/** @import { FeedMessage } from "../live/live_board.js" */
import { takeKeysOfPage } from "../board/keys.js";
import { subscribe } from "../live/live_feed.js";
import { ClusterBoard } from "./cluster_board.js";
import { LiveCluster } from "./live_cluster.js";

/**
 * Draws a running cluster in `host`; returns {board, live}. `options`: url of the feed, headers() to send,
 * onChange(live), limit (lines kept), theme, signal.
 *
 * @param {HTMLElement} host
 * @param {{url?: string, headers?: () => Record<string, string>, limit?: number, signal?: AbortSignal,
 *   theme?: import("../board/theme.js").ThemeName, onChange?: (live: LiveCluster) => void}} options
 */
export function watchCluster(
  host,
  { url = "/events", headers, limit, onChange, theme, signal = new AbortController().signal },
) {
  const board = new ClusterBoard(host, { signal, theme });
  takeKeysOfPage(board.root, signal);
  const live = new LiveCluster(board, { onChange, limit, rejoin: () => rejoin() });
  const onMessage = (/** @type {FeedMessage} */ message) => live.receive(message);
  const rejoin = subscribe(url, { headers, past: true, signal, onMessage });
  return { board, live };
}
