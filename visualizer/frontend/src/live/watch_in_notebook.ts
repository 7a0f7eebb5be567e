/** A live board in a notebook, whose kernel reads the server's feed. */

import { Board } from "../board/board.ts";
import type { ViewState } from "../board/store.ts";
import { h } from "../drawing/html.ts";
import { modelOf, type Widget } from "../host/notebook.ts";
import { LiveBoard } from "./live_board.ts";

const SYNC_EVERY = 200; // ms
const PATIENCE = 5000; // ms to wait for a kernel that may be busy or gone

/**
 * anywidget's `render` for `visualizer.watch`. The kernel has the connection, because the browser may not be
 * able or allowed to reach the server. Messages sent before a view exists are lost, so the view sends hello first.
 */
export async function watchInNotebook({ model, el, signal, host }: Widget) {
  const ending = signal ?? new AbortController().signal;
  const traits = await modelOf(model, host, model.get("feed"));
  if (ending.aborted) return;
  const me = Math.random().toString(36).slice(2);
  let timer: ReturnType<typeof setTimeout> | null = null;
  let shown: (Pick<ViewState, "step" | "selected"> & { following: boolean }) | null = null; // not written to the widget model yet, where the kernel may set its own state meanwhile
  const sync = ({ step, selected }: Pick<ViewState, "step" | "selected">) => {
    shown = { step, selected, following: live.following };
    if (timer) return;
    timer = setTimeout(() => {
      timer = null;
      traits.set("shown", shown);
      traits.save_changes();
      if (shown) board.root.dataset.synced = `${shown.step} ${shown.following}`;
    }, SYNC_EVERY);
  };
  const board = new Board(el, { signal: ending, onChange: (state) => sync(state) });
  const hello = () => traits.send({ hello: me });
  const live = new LiveBoard(board, {
    rejoin: hello,
    onChange: ({ shows }) => shows && sync(board.state()),
  });
  const patience = setTimeout(() => {
    board.showMessage(
      "waiting",
      h("h2", "The kernel does not answer."),
      h("p", "It is busy, or this is a saved notebook. Run the cell again to watch the server."),
    );
  }, PATIENCE);
  const hear = (message: any) => {
    clearTimeout(patience);
    if (message.type === "go") go(message);
    else if (!message.to || message.to === me) live.receive(message);
  };
  const go = ({ following, ...place }: any) => {
    if (!live.shows) return;
    board.restore(place);
    if (following != null) live.follow(following);
  };
  traits.on("msg:custom", hear);
  ending.addEventListener("abort", () => {
    clearTimeout(patience);
    traits.off("msg:custom", hear);
    traits.send({ bye: me });
  });
  hello();
}
