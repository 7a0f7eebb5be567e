/**
 * "Open your trace": draws a file that the reader drops, chooses or picks among the samples. The file stays in the
 * browser: our own logs are read here, and those of other engines by our Python readers, which run in a worker.
 */

import { mountCluster } from "../cluster/mount_cluster.ts";
import { forgetAddress } from "../host/address.ts";
import { piecesOf } from "../host/log_bytes.ts";
import { acceptDrops, take } from "../host/open_log.ts";
import { drawPageBoard, fetchBytes, one } from "./boards.ts";

const MOST = 256 << 20; // bytes, as in visualizer/sources/limits.py
const HEAD = 4096; // bytes of the first line that tell what a file is
const OWN = /^\s*\{\s*"type"\s*:\s*"(run_started|keyframe)"/;
const CLUSTER = /^\s*\{\s*"type"\s*:\s*"cluster_started"/;

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

/** The beginning of a file, unpacked; empty if it cannot be unpacked. */
async function headOf(bytes: Uint8Array) {
  try {
    for await (const piece of piecesOf(bytes))
      return new TextDecoder().decode(piece.bytes.subarray(0, HEAD));
  } catch {
    // Damaged gzip: the Python reader says where.
  }
  return "";
}

/** The log in a file of another engine, packed: the Python readers, in a worker; or why it cannot be read. */
async function translate(
  bytes: Uint8Array,
  onPhase: (words: string) => void,
): Promise<{ log: Uint8Array; isCluster: boolean } | { refusal: string }> {
  const { runPython } = await import("./page_kernel.ts");
  const source = 'from page_open import open_file\nopen_file("/tmp/trace")\n';
  try {
    const output = await runPython(source, { files: { "/tmp/trace": bytes }, onPhase });
    return { log: output.log as Uint8Array, isCluster: output.module === "cluster" };
  } catch (error) {
    return { refusal: (error as Error).message };
  }
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
  const head = await headOf(bytes);
  if (signal.aborted) return;
  host.hidden = false;
  document.title = `${name} · Underglass`;
  const about = { title: name, caption: "" };
  if (CLUSTER.test(head)) {
    tell("");
    return mountCluster(host, { log: bytes, about, signal });
  }
  let log = bytes;
  if (!OWN.test(head)) {
    const answer = await translate(bytes, (words) => signal.aborted || tell(words));
    if (signal.aborted) return;
    if ("refusal" in answer) {
      host.hidden = true;
      return tell(`${name} cannot be opened: ${answer.refusal}`, true);
    }
    log = answer.log;
    if (answer.isCluster) {
      tell("");
      return mountCluster(host, { log, about, signal });
    }
  }
  tell("");
  await drawPageBoard(host, log, { about, signal });
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
