/**
 * A cluster's board in a notebook. The widget's model has the log in base64, the cursor `at` in microseconds and the
 * selected `request`; -1 is none, -2 leaves the choice to the board. A log that is too large to be saved comes from the
 * kernel.
 */

import { h } from "../drawing/html.ts";
import { KernelSync } from "../host/kernel_sync.ts";
import { fromBase64 } from "../host/log_bytes.ts";
import { askForAWhile, hear, seatIn, tourFrom, type Widget } from "../host/notebook.ts";
import { keep } from "../host/outputs.ts";
import { ClusterBoard } from "./cluster_board.ts";
import { drawClusterComparison } from "./compare_clusters.ts";
import { loadCluster } from "./mount_cluster.ts";

const PATIENCE = 5000; // ms to wait for a kernel that may be busy or gone

/** anywidget's `render`. */
export async function clusterInNotebook({ model: traits, el, signal }: Widget) {
  const ending = signal ?? new AbortController().signal;
  const board = new ClusterBoard(el, {
    signal: ending,
    level: traits.get("level"),
    onChange: () => sync.moved(),
  });
  // anywidget does not tell a widget its own id, but each widget has a layout of its own.
  const layout = traits.get("layout")?.model_id;
  const showRun = () => board.showRun(traits.get("run"));
  showRun();
  hear(traits, "change:run", showRun, ending);
  board.tell = () => tourFrom(traits);
  board.seatOf = (replica) => seatIn(traits, replica);
  const sync = new KernelSync(traits, layout && `IPY_MODEL_${layout}`, () => known(board));
  keep(traits, board, () => [board]);
  const follow = (name: string, go: () => void) =>
    hear(traits, `change:${name}`, () => board.model && go(), ending);
  follow(
    "at",
    () => traits.get("at") !== Math.round(board.state.at) && board.goTo(traits.get("at")),
  );
  follow("request", () => {
    const id = traits.get("request");
    if (id !== (board.selected?.id ?? -1)) board.select(id < 0 ? null : id);
  });
  const saved = fromBase64(traits.get("log"));
  const log = saved.length ? saved : await askForAWhile(traits, "log", PATIENCE);
  if (ending.aborted) return;
  if (!log) {
    const words =
      "The notebook does not contain this log, because it is too large. Run the cell again.";
    board.showMessage("empty", h("p", words));
    return;
  }
  const [at, request] = [traits.get("at"), traits.get("request")];
  await loadCluster(board, log, {
    at: at < 0 ? undefined : at,
    selected: request === -2 ? undefined : request < 0 ? null : request,
  });
  if (traits.get("run")?.more) traits.send({ ask: "more" });
}

/** The state of a board for the kernel. */
const known = ({ model, state, selected, level }: ClusterBoard) =>
  model ? { at: Math.round(state.at), request: selected?.id ?? -1, level } : {};

/** anywidget's `render` of a comparison. */
export async function clusterComparisonInNotebook({ model: traits, el, signal }: Widget) {
  const ending = signal ?? new AbortController().signal;
  const logs = ["a", "b"].map((name) => fromBase64(traits.get(name)));
  const [names, scenes] = [traits.get("names"), traits.get("scenes")];
  const page = await drawClusterComparison(el, logs, { names, scenes, signal: ending });
  keep(traits, page, () => [page]);
}
