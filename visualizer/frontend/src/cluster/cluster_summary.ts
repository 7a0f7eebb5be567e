/** The run in one row: requests, latency, hits, and how often the router was right. */

import { patchChildren } from "../board/patch_children.ts";
import { plural } from "../drawing/html.ts";
import { duration } from "../model/duration.ts";
import { cell } from "../panels/summary_panel.ts";
import { clusterFacts } from "./cluster_facts.ts";
import type { ClusterModel } from "./cluster_model.ts";

export function writeClusterSummary(cells: HTMLElement, model: ClusterModel) {
  const { requests, ttft, prompt, delivered, judged, wrong, ...rest } = clusterFacts(model);
  const { lost, retried, continued } = rest;
  const { from, to } = model.extent;
  const present = model.replicas.filter(({ left }) => !left).length;
  const gone = model.replicas.length - present;
  const percent = (part: number, whole: number) =>
    whole ? `${Math.round((100 * part) / whole)} %` : "none";
  // A replica whose log begins with a keyframe had steps before it.
  const isPart = model.replicas.some(
    ({ runs: [first] }) => first?.hasSteps && first.model.stepsBefore > 0,
  );
  const names = ttft.map(({ name }) => name).join(", ");
  const facts = {
    requests,
    delivered,
    prompt,
    judged,
    wrong: wrong.length,
    lost,
    retried,
    continued,
  };
  Object.assign((cells.parentElement as HTMLElement).dataset, facts);
  patchChildren(cells, [
    cell(
      isPart ? "router, in a part of the run" : "router",
      model.router || "unknown",
      `${duration(to - from)}`,
    ),
    cell("replicas", `${present}`, gone ? `${gone} left` : ""),
    cell("requests", requests.toLocaleString("en")),
    cell(
      ttft.length ? `TTFT ${names}` : "TTFT",
      ttft.map(({ value }) => duration(value)).join(", ") || "none",
    ),
    cell("prefix hits", percent(delivered, prompt), `of ${plural(prompt, "prompt token")}`),
    cell(
      "predicted as delivered",
      percent(judged - wrong.length, judged),
      `of ${plural(judged, "prediction")}`,
    ),
    cell("lost", lost.toLocaleString("en")),
    cell("retried", retried.toLocaleString("en"), continued ? `${continued} continued` : ""),
  ]);
}
