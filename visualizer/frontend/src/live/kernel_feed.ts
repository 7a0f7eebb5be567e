/**
 * A feed that a notebook's kernel reads, because the browser may not be able or allowed to reach the server. Messages
 * sent before a view exists are lost, so the view sends hello first.
 */

import type { Shell } from "../board/shell.ts";
import { h } from "../drawing/html.ts";
import type { WidgetModel } from "../host/kernel_sync.ts";
import { hear, modelOf, type Widget } from "../host/notebook.ts";

const PATIENCE = 5000; // ms to wait for a kernel that may be busy or gone

/** Begins a board on the feed of a widget and passes it the messages. `rejoin()` asks for a new beginning. */
export async function followKernel(
  { model, signal = new AbortController().signal, host }: Widget,
  sender: "server" | "gateway",
  begin: (
    signal: AbortSignal,
    traits: WidgetModel,
    rejoin: () => void,
  ) => { board: Shell; take: (message: any) => void },
) {
  const traits = await modelOf(model, host, model.get("feed"));
  if (signal.aborted) return;
  const me = Math.random().toString(36).slice(2);
  const hello = () => traits.send({ hello: me });
  const { board, take } = begin(signal, traits, hello);
  const words = `It is busy, or this is a saved notebook. Run the cell again to watch the ${sender}.`;
  const patience = setTimeout(
    () => board.showMessage("waiting", h("h2", "The kernel does not answer."), h("p", words)),
    PATIENCE,
  );
  const heard = (message: any) => {
    clearTimeout(patience);
    if (!message.to || message.to === me) take(message);
  };
  hear(traits, "msg:custom", heard, signal);
  signal.addEventListener("abort", () => {
    clearTimeout(patience);
    traits.send({ bye: me });
  });
  hello();
}
