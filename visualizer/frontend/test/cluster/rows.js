/**
 * Prints, as JSON, what the board knows of each cluster log of a folder: the decisions, and the number of events and
 * requests of each part of a replica's log. tests/visualizer/test_golden_cluster.py compares them.
 *
 *   node rows.js FOLDER
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { clusterFacts, predictedHit } from "../../src/cluster/cluster_facts.ts";
import { ClusterModel } from "../../src/cluster/cluster_model.ts";

const [folder] = process.argv.slice(2);
const known = {};
for (const file of readdirSync(folder).filter((name) => name.endsWith(".jsonl"))) {
  const model = new ClusterModel();
  model.read(readFileSync(join(folder, file)));
  model.end();
  const { wrong, ...facts } = clusterFacts(model);
  const runs = model.replicas.flatMap((replica) => replica.runs.filter(({ end }) => end !== null));
  known[file.slice(0, -".jsonl".length)] = {
    facts: { ...facts, wrong: wrong.length },
    parts: runs.map(({ id, model: log, offset }) => ({
      replica: id,
      events: log.events.length,
      requests: log.requests.length,
      offset,
    })),
    rows: model.routes.map((route) => ({
      request: route.request.id,
      attempt: route.attempt,
      replica: route.replica,
      its_run: model.replica(route.replica).numberOf(route.run),
      its_request: route.its,
      reason: route.reason,
      load: route.loads[route.replica] ?? 0,
      prompt_tokens: route.prompt,
      predicted_tokens: predictedHit(route),
      cached_tokens: model.delivered(route),
      output_tokens: route.output,
      routed_us: route.at,
      ttft_us: model.ttftOf(route),
      lost: route.isLost,
    })),
  };
}
console.log(JSON.stringify(known));
