/** What limited a running engine's run: a live page asks its server for it again and again, because Python finds it. */

import type { Board } from "../board/board.ts";

const EVERY = 5000; // ms; the answer is about the whole run, and changes slowly

/** Asks `url` while the page is visible and the log grows, until the board's signal aborts. */
export function followRun(
  board: Board,
  url: string,
  headers: () => Record<string, string> = () => ({}),
) {
  const { signal } = board;
  let known = "";
  let asked = 0; // number of steps
  const ask = async () => {
    const steps = board.model?.stepCount ?? 0;
    if (document.hidden || steps === asked) return;
    asked = steps;
    const answer = await fetch(url, { headers: headers(), signal });
    const text = answer.ok ? await answer.text() : "";
    if (!text || text === known || signal.aborted) return;
    known = text;
    board.showRun(JSON.parse(text));
  };
  // A server that does not answer is told of by the feed.
  const timer = setInterval(() => ask().catch(() => {}), EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
}
