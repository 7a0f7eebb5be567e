/**
 * Prints, as JSON, what the board knows of each cluster log of a folder: the decisions and their sentences, the number of
 * events and requests of each part of a replica's log, and what each replica does at the times of the gateway's events.
 * tests/visualizer/test_golden_cluster.py and benchmarks/chaos/sentences.py compare them with the log.
 *
 *   node rows.js FOLDER
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { clusterFacts, predictedHit } from "../../src/cluster/cluster_facts.ts";
import { ClusterModel } from "../../src/cluster/cluster_model.ts";
import {
  clusterSentence,
  presenceWords,
  queueAt,
  seatsAt,
} from "../../src/cluster/cluster_words.ts";
import { plain } from "../../src/model/index.ts";

const [folder] = process.argv.slice(2);
const known = {};
for (const file of readdirSync(folder).filter((name) => name.endsWith(".jsonl"))) {
  const bytes = readFileSync(join(folder, file));
  const model = new ClusterModel();
  model.read(bytes);
  model.end();
  const lines = bytes.toString().split("\n").filter(Boolean);
  const events = lines.map((line) => JSON.parse(line)).filter(({ type }) => type !== "of");
  const times = new Set(events.flatMap(({ t }) => t?.at ?? []));
  const says = (replica, at) => ({
    words: presenceWords(model, replica, at),
    ...seatsAt(replica, at),
    queue: queueAt(replica, at),
  });
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
    sentences: model.routes.map((route) => plain(clusterSentence(model, route))),
    moments: [...times].map((at) => [
      at,
      Object.fromEntries(model.replicas.map((replica) => [replica.id, says(replica, at)])),
    ]),
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
