/**
 * A cluster's board that follows a gateway. Messages come from a feed (`live/live_feed.ts`). A picture stays for half a
 * second; events wait, unfolded, until the next one.
 *
 * While the board follows, the cursor is at the newest moment and the view at the end of the axis. Moving the cursor
 * stops that; N, or End, follows again. When the page has read more lines than `limit`, it asks the gateway for a new
 * beginning: the replicas' present states.
 */

import { h } from "../drawing/html.ts";
import { clampView } from "../drawing/time_axis.ts";
import { type EventsMessage, Live, type LiveOptions, MOMENT } from "../live/live.ts";
import type { ClusterBoard } from "./cluster_board.ts";
import { ClusterModel } from "./cluster_model.ts";
import { joinedWords } from "./cluster_words.ts";

const LIMIT = 60_000; // lines
const SPAN = 20e6; // us in view while the board follows, at most

export class LiveCluster extends Live<ClusterBoard, ClusterModel> {
  sender = "gateway" as const;
  /** Where the cursor was put when it followed; elsewhere, the reader has moved it. */
  #followed = NaN;
  /** Lines that are not read yet. */
  #text = "";
  #timer: ReturnType<typeof setTimeout> | undefined;
  #drawnAt = -Infinity;

  constructor(board: ClusterBoard, options: LiveOptions<LiveCluster>) {
    super(board, options, options.limit ?? LIMIT);
    board.onChange = ({ at }) => {
      if (this.following && at !== Math.round(this.#followed)) this.follow(false);
    };
    board.signal.addEventListener("abort", () => clearTimeout(this.#timer));
    this.setState("connecting", "Connecting");
  }

  get takesKeys() {
    return this.shows && !this.board.showsOne;
  }

  begin(isNew: boolean, dropped: number) {
    this.model = new ClusterModel();
    this.#text = "";
    if (isNew) this.setNote("new-run", "The gateway was restarted: this is a new run.");
    else this.setNote("dropped", dropped ? `Dropped ${dropped} events, joined again.` : "");
  }

  take({ text }: EventsMessage) {
    this.#text += text;
  }

  schedule() {
    const rest = Math.max(0, this.#drawnAt + MOMENT - performance.now());
    this.#timer ??= setTimeout(() => this.#show(), this.shows ? rest : 0);
  }

  #show() {
    this.#timer = undefined;
    const { board, model } = this;
    const text = this.#text;
    if (board.signal.aborted || !text || !model) return;
    this.#text = "";
    this.#drawnAt = performance.now();
    if (!this.read(text)) return;
    if (this.shows) board.grow();
    else if (!model.routes.length && !model.replicas.some(({ timed }) => timed.length))
      this.#showEmpty(model);
    else {
      const { at } = board.state;
      const selected = board.selected?.id ?? null;
      board.open(model, { at, selected: model.request(selected)?.routes.length ? selected : null });
    }
    if (this.following && this.shows) this.goToNewest();
    this.update();
    if (model.lineCount > this.limit) this.startOver();
  }

  #showEmpty(model: ClusterModel) {
    const words = `${joinedWords(model)}. The board appears as soon as a request arrives.`;
    if (!this.board.model)
      this.board.showMessage("waiting", h("h2", "No requests yet."), h("p", words));
  }

  goToNewest() {
    const { board } = this;
    const { from, to } = board.axis;
    const width = Math.min(to - from, SPAN);
    this.#followed = to;
    board.state.set({ at: to, view: clampView({ from: to - width, to }, board.axis) });
  }

  showStatus() {
    const { paused, not_ready: problem, replicas = [], source, ended } = this.status;
    if (ended) this.setState("over", `${source}: ${ended}`);
    if (!this.run || ended) return;
    const missing = replicas.filter(({ ready }) => !ready).map(({ id }) => id);
    const words = problem
      ? `Live, but ${problem}`
      : paused
        ? "Live. All replicas are paused"
        : missing.length
          ? `Live. Not ready: replica ${missing.join(", ")}`
          : "Live";
    this.setState("live", words);
  }

  followWords() {
    return "Follow (N)";
  }
}
