/** A live board in a notebook, whose kernel reads the server's feed. */

import { Board } from "../board/board.ts";
import { cardDrawer } from "../board/card.ts";
import type { ViewState } from "../board/store.ts";
import type { Widget } from "../host/notebook.ts";
import type { RunInWords } from "../panels/run_panel.ts";
import { followRun } from "./follow_run.ts";
import { askedBy, followKernel } from "./kernel_feed.ts";
import { LiveBoard } from "./live_board.ts";

const SYNC_EVERY = 200; // ms

/** anywidget's `render` for `visualizer.watch`. */
export const watchInNotebook = (widget: Widget) =>
  followKernel(widget, (signal, traits, rejoin) => {
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
    const { tell, seatOf, fetch: fetchFrom } = askedBy(traits);
    const board = new Board(widget.el, {
      signal,
      onChange: (state) => sync(state),
      tell,
      seat: seatOf(),
    });
    const live = new LiveBoard(board, {
      rejoin,
      onChange: ({ shows }) => shows && sync(board.state()),
    });
    const size = () => board.model?.lastStep ?? 0;
    const show = (run: RunInWords) => board.showRun(run);
    followRun("/events", { signal, size, show, fetchFrom });
    const go = ({ following, ...place }: any) => {
      if (!live.shows) return;
      board.restore(place);
      if (following != null) live.follow(following);
    };
    return { board, live, draw: cardDrawer(board), go };
  });
