/**
 * A feed that a notebook's kernel reads, because the browser may not be able or allowed to reach the server. The kernel
 * passes on the bytes of the connections that the view asks for, see `visualizer/live/feed_widget.py`.
 */

import type { Fetch, Seat } from "../board/seat.ts";
import type { Shell } from "../board/shell.ts";
import type { ThemeName } from "../board/theme.ts";
import { h } from "../drawing/html.ts";
import type { WidgetModel } from "../host/kernel_sync.ts";
import { hear, modelOf, seatFrom, type Widget } from "../host/notebook.ts";
import { keepPicture } from "../host/outputs.ts";
import { tellFrom } from "../tour/open_tour.ts";
import type { FeedMessage, Live } from "./live.ts";
import { subscribe } from "./live_feed.ts";

const encoder = new TextEncoder();

/** What a live board asks Python for, by the kernel: its tour, and the scheduler's seat. */
export const askedBy = (traits: WidgetModel) => {
  const fetch = fetchBy(traits);
  const load = () => seatFrom(traits);
  const seatOf = (replica?: string): Seat => ({ python: { route: "/seat", fetch, replica }, load });
  return { tell: tellFrom("/events", undefined, fetch), seatOf, fetch };
};

/** Begins a board on the feed of a widget. `rejoin()` asks for a new beginning; `go` gets the kernel's own messages. */
export async function followKernel(
  { model, signal = new AbortController().signal, host }: Widget,
  begin: (
    signal: AbortSignal,
    traits: WidgetModel,
    rejoin: () => void,
  ) => {
    board: Shell;
    live: Live<any, any>;
    draw?: (theme: ThemeName) => Promise<Uint8Array>;
    go?: (place: any) => void;
  },
) {
  const traits = await modelOf(model, host, model.get("feed"));
  if (signal.aborted) return;
  const { board, live, draw, go } = begin(signal, traits, () => rejoin());
  keepPicture(model, board, () => [board], draw, true);
  const tellBusy = () =>
    board.showMessage(
      "waiting",
      h("h2", "The kernel does not answer."),
      h(
        "p",
        `It is busy, or this is a saved notebook. Run the cell again to watch the ${live.sender}.`,
      ),
    );
  const onMessage = (message: FeedMessage) => {
    if (message.type !== "slow") live.receive(message);
    else if (!live.model) tellBusy();
  };
  hear(traits, "msg:custom", (message) => message.type === "go" && go?.(message), signal);
  const rejoin = subscribe("/events", { onMessage, signal, open: fetchBy(traits) });
}

/** `fetch` by the kernel. */
export const fetchBy =
  (traits: WidgetModel): Fetch =>
  (path, { headers, signal, body: sent }) => {
    const me = Math.random().toString(36).slice(2);
    const ends = new AbortController();
    return new Promise<Response>((resolve, reject) => {
      let body: ReadableStreamDefaultController<Uint8Array>;
      const stream = new ReadableStream<Uint8Array>({ start: (controller) => (body = controller) });
      const heard = ({ to, status, text, end }: any) => {
        if (to !== me) return;
        if (status) resolve(new Response(stream, { status }));
        if (text) body.enqueue(encoder.encode(text));
        if (!end) return;
        ends.abort();
        body.close();
        reject(new Error("the server does not answer")); // unless it has answered
      };
      hear(traits, "msg:custom", heard, ends.signal);
      const stop = () => {
        ends.abort();
        traits.send({ close: me });
        body.error(signal.reason);
        reject(signal.reason);
      };
      signal.addEventListener("abort", stop, { once: true, signal: ends.signal });
      traits.send({ open: me, path, body: sent, last: headers["Last-Event-ID"] });
    });
  };
