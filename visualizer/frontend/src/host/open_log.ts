/** Opens another log on a page: dropped anywhere on it, or chosen from the disk. The file stays in the browser. */

import { h } from "../drawing/html.ts";

/** Calls `open` for each log that the reader opens. The offer stands below what is in `host`. */
export function acceptLogs(
  host: HTMLElement,
  open: (bytes: Uint8Array, name: string) => void,
  signal: AbortSignal,
) {
  const input = h("input", {
    type: "file",
    accept: ".jsonl,.gz,.index",
    "aria-label": "Open a log",
  });
  const note = h("label.open-log", "Drop another log here (.jsonl, .jsonl.gz), or ", input);
  note.style.cssText =
    "display: block; padding: 4px 20px 16px; color: light-dark(#5a606b, #a5abb6); font: 12px sans-serif";
  // The browser's "No file chosen" says nothing here.
  input.style.cssText = "width: 10em; color: transparent; font: inherit";
  host.after(note);
  input.addEventListener("change", () => take(input.files?.[0], open));
  acceptDrops(host, open, signal);
  signal.addEventListener("abort", () => note.remove());
}

/** Reads a file that the reader has chosen or dropped. */
export const take = async (
  file: File | undefined,
  open: (bytes: Uint8Array, name: string) => void,
) => file && open(new Uint8Array(await file.arrayBuffer()), file.name);

/** Calls `open` for each file that is dropped anywhere on the page. Meanwhile `host` has an outline. */
export function acceptDrops(
  host: HTMLElement,
  open: (bytes: Uint8Array, name: string) => void,
  signal: AbortSignal,
) {
  const isFile = ({ dataTransfer }: DragEvent) => dataTransfer?.types.includes("Files");
  const mark = (on: boolean) => {
    host.style.outline = on ? "3px dashed currentColor" : "";
  };
  const page = { signal };
  addEventListener(
    "dragover",
    (event) => {
      if (!isFile(event)) return;
      event.preventDefault(); // otherwise the browser opens the file itself
      mark(true);
    },
    page,
  );
  addEventListener("dragleave", ({ relatedTarget }) => relatedTarget || mark(false), page);
  addEventListener(
    "drop",
    (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      mark(false);
      take(event.dataTransfer?.files[0], open);
    },
    page,
  );
}
