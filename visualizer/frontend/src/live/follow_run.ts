/** What limited a running engine's run: a live page asks its server for it again and again, because Python finds it. */

import type { Fetch } from "../board/seat.ts";

const EVERY = 5000; // ms; the answer is about the whole run, and changes slowly

/**
 * Asks the server of a feed while the page is visible and `size()`, the log's, changes, until `signal` aborts.
 *
 * @param feed the URL of the feed, beside which the answer is
 */
export function followRun<Run>(
  feed: string,
  {
    headers = () => ({}),
    signal,
    size,
    show,
    fetchFrom = (address, init) => fetch(address, init),
  }: {
    headers?: () => Record<string, string>;
    signal: AbortSignal;
    size: () => number;
    show: (run: Run) => void;
    fetchFrom?: Fetch;
  },
) {
  const url = feed.replace(/events(?=$|\?)/, "regimes");
  let known = "";
  let asked = 0;
  const ask = async () => {
    const now = size();
    if (document.hidden || now === asked) return;
    asked = now;
    const answer = await fetchFrom(url, { headers: headers(), signal });
    const text = answer.ok ? await answer.text() : "";
    if (!text || text === known || signal.aborted) return;
    known = text;
    show(JSON.parse(text));
  };
  // A server that does not answer is told of by the feed.
  const timer = setInterval(() => ask().catch(() => {}), EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
}
