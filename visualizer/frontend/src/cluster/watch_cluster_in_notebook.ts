/** A live cluster in a notebook, whose kernel reads the gateway's feed. */

import { h } from "../drawing/html.ts";
import { modelOf, type Widget } from "../host/notebook.ts";
import { ClusterBoard } from "./cluster_board.ts";
import { LiveCluster } from "./live_cluster.ts";

const PATIENCE = 5000; // ms to wait for a kernel that may be busy or gone

/** anywidget's `render` for `visualizer.watch` of a gateway; see `live/watch_in_notebook.ts`. */
export async function watchClusterInNotebook({ model, el, signal, host }: Widget) {
  const ending = signal ?? new AbortController().signal;
  const traits = await modelOf(model, host, model.get("feed"));
  if (ending.aborted) return;
  const me = Math.random().toString(36).slice(2);
  const board = new ClusterBoard(el, { signal: ending });
  const hello = () => traits.send({ hello: me });
  const live = new LiveCluster(board, { rejoin: hello });
  const patience = setTimeout(() => {
    const words =
      "The kernel does not answer. It is busy, or this is a saved notebook. Run the cell again to watch the gateway.";
    board.showMessage("waiting", h("p", words));
  }, PATIENCE);
  const hear = (message: any) => {
    clearTimeout(patience);
    if (!message.to || message.to === me) live.receive(message);
  };
  traits.on("msg:custom", hear);
  ending.addEventListener("abort", () => {
    clearTimeout(patience);
    traits.off("msg:custom", hear);
    traits.send({ bye: me });
  });
  hello();
}
