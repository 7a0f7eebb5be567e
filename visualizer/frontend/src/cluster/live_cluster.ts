/**
 * A cluster's board that follows a gateway. Messages come from a feed (`live/live_feed.ts`, or a notebook's kernel). A
 * picture stays for half a second; events wait, unfolded, until the next one.
 *
 * While the board follows, the cursor is at the newest moment and the view at the end of the axis. Moving the cursor
 * stops that; N, or End, follows again. When the page has read more lines than `limit`, it asks the gateway for a new
 * beginning: the replicas' present states.
 */

import { h } from "../drawing/html.ts";
import { clampView } from "../drawing/time_axis.ts";
import css from "../live/live.css";
import type { EventsMessage, FeedMessage, ServerStatus } from "../live/live_board.ts";
import { LogError } from "../model/index.ts";
import type { ClusterBoard } from "./cluster_board.ts";
import { ClusterModel } from "./cluster_model.ts";

const LIMIT = 60_000; // lines
const MOMENT = 500; // ms that a picture stays
const SPAN = 20e6; // us in view while the board follows, at most

const encoder = new TextEncoder();

export class LiveCluster {
  following = true;
  /** Where the cursor was put when it followed; elsewhere, the reader has moved it. */
  #followed = NaN;
  run = "";
  model: ClusterModel | null = null;
  status: ServerStatus & {
    router?: string;
    replicas?: { id: string; ready: boolean; not_ready: string }[];
  } = {};
  #next = -1;
  #joining = false;
  /** Lines that are not read yet. */
  #text = "";
  #timer: ReturnType<typeof setTimeout> | undefined;
  #drawnAt = -Infinity;
  board: ClusterBoard;
  rejoin: () => void;
  onChange: (live: LiveCluster) => void;
  limit: number;
  words = h("span", { role: "status" });
  note = h("span.muted", { role: "status" });
  button = h("button");

  /** `rejoin()` asks the feed for a new beginning; `onChange(live)` is called after every change. */
  constructor(
    board: ClusterBoard,
    {
      rejoin,
      onChange = () => {},
      limit = LIMIT,
    }: { rejoin: () => void; onChange?: (live: LiveCluster) => void; limit?: number },
  ) {
    this.board = board;
    this.rejoin = rejoin;
    this.onChange = onChange;
    this.limit = limit;
    this.button.addEventListener("click", () => this.follow(!this.following));
    const mark = h("i", { "aria-hidden": "true" });
    board.root.append(h("style", css));
    board.root.append(h("div.live", mark, this.words, this.note, this.button));
    board.onChange = ({ at }) => {
      if (this.following && at !== Math.round(this.#followed)) this.follow(false);
    };
    const { signal, root } = board;
    root.addEventListener(
      "keydown",
      (event) => {
        const isKey = ["n", "End"].includes(event.key) && !event.ctrlKey && !event.metaKey;
        if (isKey && this.shows && !board.showsOne) this.follow(true);
      },
      { signal },
    );
    signal.addEventListener("abort", () => clearTimeout(this.#timer));
    this.#setState("connecting", "Connecting");
  }

  /** Whether the board shows this feed's model. */
  get shows() {
    return !!this.model && this.board.model === this.model;
  }

  /** Starts or stops following the newest moment. */
  follow(on: boolean) {
    this.following = on;
    if (on && this.shows) {
      this.#goToNewest();
      this.board.redraw();
    }
    this.#update();
  }

  /** Handles a message of the feed. */
  receive(message: FeedMessage) {
    if (message.type === "events") this.#takeEvents(message);
    else if (message.type === "status") {
      this.status = message.status;
      this.#showStatus();
    } else if (message.type === "lost") {
      const what = this.run
        ? "The connection is lost. Reconnecting"
        : "The gateway does not answer. Trying again";
      this.#setState("lost", `${what} in ${message.seconds} s`);
    } else if (message.type === "slow")
      this.#setState("connecting", `No answer for ${message.seconds} s`);
    else this.#setState("refused", "This gateway requires a key");
  }

  #takeEvents({ run, first, count, text, joins, dropped }: EventsMessage) {
    if (joins) this.#begin(run, dropped);
    else if (run !== this.run || this.#joining) return;
    else if (first !== this.#next) {
      this.#startOver();
      return;
    }
    this.#next = first + count;
    this.#text += text;
    this.#showStatus();
    const rest = Math.max(0, this.#drawnAt + MOMENT - performance.now());
    this.#timer ??= setTimeout(() => this.#read(), this.shows ? rest : 0);
  }

  #startOver() {
    this.#joining = true;
    this.rejoin();
  }

  #begin(run: string, dropped: number) {
    const isNew = this.run && run !== this.run;
    this.note.textContent = isNew
      ? "The gateway was restarted: this is a new run."
      : dropped
        ? `Dropped ${dropped} events, joined again.`
        : "";
    this.run = run;
    this.model = new ClusterModel();
    this.#text = "";
    this.#joining = false;
  }

  #read() {
    this.#timer = undefined;
    const model = this.model as ClusterModel;
    if (this.board.signal.aborted || !this.#text) return;
    const text = this.#text;
    this.#text = "";
    this.#drawnAt = performance.now();
    try {
      model.read(encoder.encode(text));
    } catch (error) {
      if (!(error instanceof LogError)) throw error;
      this.#setState("refused", `The gateway's events cannot be drawn: ${error.reason}`);
      return;
    }
    this.#show(model);
    if (model.lineCount > this.limit) this.#startOver();
  }

  #show(model: ClusterModel) {
    const { board } = this;
    const isEmpty = !model.routes.length && !model.replicas.some(({ axis }) => axis);
    if (isEmpty) {
      const count = model.replicas.length;
      const words = `${count} ${count === 1 ? "replica has" : "replicas have"} joined. The board appears as soon as a request arrives.`;
      if (!board.model) board.showMessage("waiting", h("h2", "No requests yet."), h("p", words));
      this.#update();
      return;
    }
    if (this.shows) board.grow();
    else {
      const { at } = board.state;
      const selected = board.selected?.id ?? null;
      board.open(model, { at, selected: model.request(selected)?.routes.length ? selected : null });
    }
    if (this.following) this.#goToNewest();
    this.#update();
  }

  #goToNewest() {
    const { board } = this;
    const { from, to } = board.axis;
    const width = Math.min(to - from, SPAN);
    this.#followed = to;
    Object.assign(board.state, {
      at: to,
      view: clampView({ from: to - width, to }, board.axis),
    });
  }

  #showStatus() {
    if (!this.run) return;
    const { paused, not_ready: problem, replicas = [] } = this.status;
    const missing = replicas.filter(({ ready }) => !ready).map(({ id }) => id);
    const words = problem
      ? `Live, but ${problem}`
      : paused
        ? "Live. All replicas are paused"
        : missing.length
          ? `Live. Not ready: replica ${missing.join(", ")}`
          : "Live";
    this.#setState("live", words);
  }

  #setState(state: "connecting" | "live" | "lost" | "refused", words: string) {
    this.board.root.dataset.live = state;
    if (this.words.textContent !== words) this.words.textContent = words;
    this.#update();
  }

  #update() {
    const { button, board } = this;
    const words = this.following ? "Following" : "Follow (N)";
    if (button.textContent !== words) button.textContent = words;
    button.setAttribute("aria-pressed", `${this.following}`);
    button.hidden = !this.shows;
    Object.assign(board.root.dataset, { following: this.following, run: this.run });
    this.onChange(this);
  }
}
