/**
 * "Open your trace": draws a file that the reader drops, chooses or picks among the samples. The file stays in the
 * browser: our own logs are read here, and those of other engines by our Python readers, which run in a worker.
 */

import type { ClusterBoard } from "../cluster/cluster_board.ts";
import { isClusterLine } from "../cluster/cluster_lines.ts";
import { mountCluster } from "../cluster/mount_cluster.ts";
import { forgetAddress } from "../host/address.ts";
import { isIndex } from "../host/index_reader.ts";
import { fetchBytes, headOf } from "../host/log_bytes.ts";
import { acceptDrops, take } from "../host/open_log.ts";
import type { RunInWords } from "../panels/run_panel.ts";
import { drawPageBoard, one } from "./boards.ts";

const MOST = 256 << 20; // bytes, as in visualizer/sources/limits.py
const OWN = /^\s*\{\s*"type"\s*:\s*"(run_started|keyframe|cluster_started)"/;

const host = one("main > .board");
const zone = one("#drop");
const status = one("#status");
let opened = new AbortController();

/** Says what is happening, or what is wrong with a file. */
function tell(words: string, isError: boolean = false) {
  status.textContent = words;
  status.hidden = !words;
  status.setAttribute("role", isError ? "alert" : "status");
  document.documentElement.dataset.open = isError ? "refused" : words ? "reading" : "drawn";
}

/** What the Python readers, in a worker, say of a file. Throws why it cannot be read. */
async function askPython(call: "open_file" | "find_regimes", bytes: Uint8Array, onPhase = tell) {
  const { runPython } = await import("./page_kernel.ts");
  const source = `from page_open import ${call}\n${call}("/tmp/trace")\n`;
  return runPython(source, { files: { "/tmp/trace": bytes }, onPhase });
}

/** Draws a file. */
async function show(bytes: Uint8Array, name: string) {
  opened.abort();
  opened = new AbortController();
  const { signal } = opened;
  tell(`Reading ${name}`);
  const size = bytes.length >> 20;
  if (bytes.length > MOST)
    return tell(
      `${name} has ${size} MB, and this page reads up to ${MOST >> 20} MB. On your machine there is no such limit: underglass open ${name}`,
      true,
    );
  let log = bytes;
  let run: RunInWords | undefined;
  let head = await headOf(log);
  if (!OWN.test(head) && !isIndex(bytes)) {
    try {
      const told = await askPython("open_file", bytes, (words) => signal.aborted || tell(words));
      log = told.log as Uint8Array;
      run = told.options?.run;
    } catch (error) {
      if (signal.aborted) return;
      host.hidden = true;
      return tell(`${name} cannot be opened: ${(error as Error).message}`, true);
    }
    head = await headOf(log);
  }
  if (signal.aborted) return;
  host.hidden = false;
  document.title = `${name} · Underglass`;
  tell("");
  const options = { about: { title: name, caption: "" }, signal, run };
  const board = isClusterLine(head)
    ? ((await mountCluster(host, { log, ...options })) as ClusterBoard)
    : await drawPageBoard(host, log, options);
  // Our own logs are drawn before Python is there.
  run ??= (await askPython("find_regimes", bytes, () => {}).catch(() => null))?.options?.run;
  if (run && !signal.aborted) board.showRun(run);
}

const open = (bytes: Uint8Array, name: string) => {
  forgetAddress();
  return show(bytes, name);
};
acceptDrops(zone, open, new AbortController().signal);
const field = one("#file") as HTMLInputElement;
field.addEventListener("change", () => take(field.files?.[0], open));
for (const sample of document.querySelectorAll("button[data-sample]")) {
  const { sample: url = "" } = (sample as HTMLElement).dataset;
  const name = url.replace(/.*\//, "");
  sample.addEventListener("click", async () => open(await fetchBytes(url), name));
}
