/** The exports of `cluster.js`: `mount` for pages, `watch` for a gateway's live page, and anywidget's `render`. */

/** @import { Widget } from "./host/notebook.js" */
import { clusterComparisonInNotebook, clusterInNotebook } from "./cluster/cluster_in_notebook.js";
import { mountCluster } from "./cluster/mount_cluster.js";
import { watchCluster } from "./cluster/watch_cluster.js";
import { watchClusterInNotebook } from "./cluster/watch_cluster_in_notebook.js";

export { mountCluster as mount, watchCluster as watch };

/** @type {Record<string, (context: Widget) => Promise<void>>} */
const RENDERERS = { compare: clusterComparisonInNotebook, watch: watchClusterInNotebook };

export default {
  /** @param {Widget} context */
  render: (context) => {
    const kind = context.model.get("live") ? "watch" : context.model.get("kind");
    return (RENDERERS[kind] ?? clusterInNotebook)(context);
  },
};
