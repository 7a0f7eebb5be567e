/** The playground: Python in the page runs what the reader asks for, the last wish if several come at once. */

import { attach, type Wish } from "../play/play.ts";
import { one } from "./boards.ts";

const status = one("#status");
const root = one("#play");
let wanted: Wish | null = null;
let running: Promise<void> | null = null;

const show = attach(
  root,
  (wish) => {
    wanted = wish;
    running ??= run().finally(() => (running = null));
  },
  new AbortController().signal,
);

async function run() {
  const { runPython } = await import("./page_kernel.ts");
  while (wanted) {
    const source = `from page_play import play\nplay(${JSON.stringify(JSON.stringify(wanted))})\n`;
    wanted = null;
    try {
      const { html = "" } = await runPython(source, { onPhase: tell });
      tell("");
      show(html);
    } catch (error) {
      tell(`${(error as Error).message} The last run is still shown.`);
    }
  }
}

function tell(words: string) {
  status.textContent = words;
}
