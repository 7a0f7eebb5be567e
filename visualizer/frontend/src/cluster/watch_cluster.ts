/** A live cluster: on a page, which reads the gateway's feed itself, and in a notebook, whose kernel reads it. */

import { takeKeysOfPage } from "../board/keys.ts";
import type { Seat } from "../board/seat.ts";
import type { ShellOptions } from "../board/shell.ts";
import type { Widget } from "../host/notebook.ts";
import { followRun } from "../live/follow_run.ts";
import { askedBy, followKernel } from "../live/kernel_feed.ts";
import type { LiveOptions } from "../live/live.ts";
import { subscribe } from "../live/live_feed.ts";
import { tellFrom } from "../tour/open_tour.ts";
import { ClusterBoard } from "./cluster_board.ts";
import { LiveCluster } from "./live_cluster.ts";

/** Draws a running cluster in `host`; returns {board, live}. `url` is that of the feed, `headers()` are sent to it. */
export function watchCluster(
  host: HTMLElement,
  {
    url = "/events",
    headers,
    signal = new AbortController().signal,
    theme,
    seatOf,
    ...options
  }: Partial<ShellOptions> &
    Omit<LiveOptions<LiveCluster>, "rejoin"> & {
      url?: string;
      headers?: () => Record<string, string>;
      seatOf?: (replica: string) => Seat;
    },
) {
  const board = new ClusterBoard(host, { signal, theme, seatOf, tell: tellFrom(url, headers) });
  takeKeysOfPage(board.root, signal);
  const live = new LiveCluster(board, { ...options, rejoin: () => rejoin() });
  const onMessage = live.receive.bind(live);
  const rejoin = subscribe(url, { headers, past: true, signal, onMessage });
  const size = () => board.model?.routes.length ?? 0;
  const show = ({ sentence }: { sentence: string }) => board.run.show(sentence);
  followRun(url, { headers, signal, size, show });
  return { board, live };
}

/** anywidget's `render` for `visualizer.watch` of a gateway. */
export const watchClusterInNotebook = (widget: Widget) =>
  followKernel(widget, (signal, traits, rejoin) => {
    const { tell, seatOf } = askedBy(traits);
    const board = new ClusterBoard(widget.el, { signal, seatOf, tell });
    return { board, live: new LiveCluster(board, { rejoin }) };
  });
