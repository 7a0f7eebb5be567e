/**
 * The function of the engine that makes each kind of decision, for links to the source.
 * `tests/visualizer/test_sources.py` checks that each of them exists.
 */

import type { Decision } from "../model/decisions.ts";
import type { Frame } from "../model/frame.ts";

/** the folder of the engine's code, and the user's home */
export type Project = { path: string; home?: string };

const SCHEDULER = "engine/core/scheduling/scheduler.py";
const SGLANG = "engine/extensions/sglang_scheduler.py";
const CACHE = "engine/core/cache/kv_cache_manager.py";
const RADIX = "engine/core/cache/radix_cache.py";
const ENGINE = "engine/core/engine.py";
const LOOP = "engine/core/loop.py";

const DECIDED_BY: Record<string, string[]> = {
  decode: [SCHEDULER, "_schedule_running"],
  prefill: [SCHEDULER, "_schedule_running"],
  catchup: [SCHEDULER, "_schedule_running"],
  stalled: [SCHEDULER, "_schedule_running"],
  first_chunk: [SCHEDULER, "_admit"],
  admitted: [SCHEDULER, "_admit_waiting"],
  preempted: [SCHEDULER, "_schedule_running"],
  evicting: [CACHE, "allocate_slots"],
  evicted: [RADIX, "clear"],
  copying: [CACHE, "allocate_slots"],
  joined: [RADIX, "_join"],
  arrived: [ENGINE, "submit"],
  aborted: [ENGINE, "abort"],
  forked: [LOOP, "_fork"],
  finished: [LOOP, "finish"],
  wasted: [LOOP, "commit"],
};

const WAITS_BY: Record<string, string[]> = {
  token_budget: [SCHEDULER, "_batch_obstacle"],
  batch_full: [SCHEDULER, "_batch_obstacle"],
  static_batch: [SCHEDULER, "_batch_obstacle"],
  no_free_blocks: [SCHEDULER, "_memory_obstacle"],
  whole_sequence: [SCHEDULER, "_memory_obstacle"],
  reserved_blocks: [SCHEDULER, "_memory_obstacle"],
  after_preemption: [SCHEDULER, "_admit_waiting"],
  policy: [SCHEDULER, "_admit_waiting"],
  expected_tokens: [SGLANG, "add_one_req"],
};

/** The file and function that made a decision of this frame, or null. */
export function sourceOf(frame: Frame, { kind, heat, request }: Partial<Decision>) {
  if (frame.model.source.engine) return null; // another engine decided
  const { scheduler = "vllm" } = frame.model.settings;
  const named = ([file, name]: string[] = []) => {
    if (file === SCHEDULER && scheduler !== "vllm")
      return { file: SGLANG, name: "_schedule_running" };
    return file ? { file, name } : null;
  };
  if (kind === "waits") return named(WAITS_BY[String(frame.waitOf(request as number).reason)]);
  if (heat === "evicting" || heat === "copying") return named(DECIDED_BY[heat]);
  const isRow = kind === "prefill" || kind === "decode" || kind === "catchup";
  const fresh = isRow && frame.story.admissions.some((one) => one.request === request);
  return named(DECIDED_BY[fresh ? "first_chunk" : String(kind)]);
}

/**
 * The address at which JupyterLab shows a file of the project, or null. `root` is the project's folder; the
 * page's configuration has the folder that JupyterLab serves.
 */
export function labAddress(file: string, root: Project | null, doc: Document = document) {
  const config = doc.getElementById("jupyter-config-data")?.textContent;
  if (!root || !config) return null;
  const { serverRoot = "", baseUrl = "/" } = JSON.parse(config);
  const served = serverRoot.replace(/\/$/, "");
  const path = `${root.path}/${file}`;
  const short = root.home && path.startsWith(root.home) ? `~${path.slice(root.home.length)}` : path;
  const inside = [path, short].find((candidate) => served && candidate.startsWith(`${served}/`));
  return inside ? `${baseUrl}lab/tree/${encodeURI(inside.slice(served.length + 1))}` : null;
}
