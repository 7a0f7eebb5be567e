/** The exports of `cluster.js`: `mount` for pages, `watch` for a gateway's live page, and anywidget's `render`. */

import { clusterComparisonInNotebook, clusterInNotebook } from "./cluster/cluster_in_notebook.ts";
import { mountCluster } from "./cluster/mount_cluster.ts";
import { watchCluster, watchClusterInNotebook } from "./cluster/watch_cluster.ts";
import type { Widget } from "./host/notebook.ts";

export { mountCluster as mount, watchCluster as watch };

const RENDERERS: Record<string, (context: Widget) => Promise<void>> = {
  compare: clusterComparisonInNotebook,
  watch: watchClusterInNotebook,
};

export default {
  render: (context: Widget) => (RENDERERS[context.model.get("kind")] ?? clusterInNotebook)(context),
};
