/**
 * The live page of a gateway: the cluster's board over the gateway's event feed, controls for all replicas, and the
 * prompt box. `live.js` is the page of one server.
 */

import { seatBehind } from "../../visualizer/frontend/src/board/seat.ts";
import type { LiveCluster } from "../../visualizer/frontend/src/cluster/live_cluster.ts";
import { watchCluster } from "../../visualizer/frontend/src/cluster/watch_cluster.ts";
import { setText } from "../../visualizer/frontend/src/live/live.ts";
import { Controls } from "./controls.ts";
import { ask, askForKey, byId, headers, posting, tell } from "./page.ts";
import { Prompts } from "./prompts.ts";
import type { Stream } from "./stream.ts";

let ending: AbortController | null = null;
let view: ReturnType<typeof watchCluster>;
const controls = new Controls((verb, body) => ask(`/engine/${verb}`, "gateway", posting(body)));
const prompts = new Prompts({
  form: byId<HTMLFormElement>("prompt"),
  list: byId("streams"),
  model: null,
  headers,
  select: (its, { replica }) => {
    const request = view.board.model?.replica(replica ?? "")?.latest?.requests.get(its);
    if (request !== undefined) view.board.select(request);
  },
});

function open() {
  ending?.abort();
  ending = new AbortController();
  byId("unlock").hidden = true;
  view = watchCluster(byId("board"), {
    seatOf: (replica) => seatBehind("/seat", "/board/seat.js", headers, replica),
    headers,
    onChange: update,
    signal: ending.signal,
  });
}

/** Updates the page after a change of the log, the gateway's state or the connection. */
function update(live: LiveCluster) {
  const { status, board } = live;
  const { live: state } = board.root.dataset;
  byId("unlock").hidden = state !== "refused" || !!status.run;
  // No request of one engine is selected here.
  controls.update({ status, model: null, board: { store: { selected: null } } }, state === "live");
  setText(byId("server"), describe(status));
  const held = status.held?.length ?? 0;
  const words = held ? `${held} held: they start together.` : "Prompts are held.";
  tell("held", status.holding ? words : "");
  const { trace_error: traceError } = status;
  tell("trace-error", traceError ? `The engines go on, but ${traceError}.` : "");
  prompts.show(status, (stream) => engineOf(live, stream));
}

/** What a prompt of this page looks up in the log: that of the replica that answers it. */
function engineOf({ model, run, status, board }: LiveCluster, { replica: id }: Stream) {
  const replica = model?.replica(id ?? "");
  const step = replica?.hasSteps ? replica.model.lastStep : 0;
  return { model: replica?.model, run, status, board: { theme: board.theme, store: { step } } };
}

/** The gateway in one line. */
function describe({ model, router, replicas, controls: may }: LiveCluster["status"]) {
  if (!replicas) return "";
  const ready = replicas.filter((one) => one.ready).length;
  const parts = [model, `${ready} of ${replicas.length} replicas`, `router ${router}`];
  if (may === false) parts.push("can be paused only from its own machine, or with a key");
  return parts.filter(Boolean).join(" · ");
}

askForKey(open);
open();
