/**
 * A board that follows a running engine. Messages come from a feed (`live_feed.ts`). Their events are folded and drawn
 * at most once per animation frame, in at most half of the time.
 *
 * An engine runs more steps per second than anyone can read, so each picture stays for half a second. Events
 * wait, unfolded, until the next picture, so that text and pictures always show the same step. If the engine is
 * paused, every step is drawn at once.
 *
 * While the board follows, the cursor stays on the newest step: the last one computed or, if the engine is paused,
 * the pending one with its arrivals. Moving the cursor stops following while the log goes on growing; moving to
 * the newest step, or N, follows again. When the connection is lost, the picture stays, greyed out. Memory is
 * bounded, see `trimmed_model.ts`.
 */

import type { Board } from "../board/board.ts";
import { h } from "../drawing/html.ts";
import { Model } from "../model/index.ts";
import { lacks } from "../model/knowledge.ts";
import { count } from "../model/words.ts";
import {
  type EventsMessage,
  Live,
  type LiveOptions,
  MOMENT,
  type ServerStatus,
  setText,
} from "./live.ts";
import { TrimmedModel } from "./trimmed_model.ts";

const LIMIT = 200_000; // events
const PIECE = 1 << 18; // characters folded between two frames
const SPARE = 4; // ms per frame for building the trimmed model, of a log that has just reached the limit

export class LiveBoard extends Live<Board, Model> {
  sender = "server" as const;
  /** The newest step when it was last followed; the board is at another one if the reader has moved. */
  #followed = 0;
  /** Messages not folded yet. */
  #pending: { text: string; happened: number }[] = [];
  #waiting = 0; // number of events in them
  #missed = 0; // events dropped because the page did not fold them in time
  #scheduled = false;
  #cost = 0;
  #idleSince = 0;
  #trimmed: TrimmedModel | null = null;
  #momentAt = -Infinity; // when the current picture was drawn
  /** The timer of the next picture. */
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(board: Board, options: LiveOptions<LiveBoard>) {
    super(board, options, options.limit ?? LIMIT);
    board.isLive = true;
    const { signal, store } = board;
    const moved = (names: Set<string>) => {
      if (names.has("step") && this.shows) this.follow(store.step >= this.newest);
      if (names.has("selected")) this.onChange(this);
    };
    // After the board has drawn the step, which it does in the same task: the counts are those of its frame.
    store.listen((names) => queueMicrotask(() => moved(names)), signal);
    this.setState("connecting", "Connecting");
  }

  /**
   * The step to follow. While the engine runs, a step that is not scheduled yet is skipped: it has little to show,
   * and every arrival would create one.
   */
  get newest() {
    const model = this.model as Model;
    const { firstStep, lastStep, measures } = model;
    const { status, scheduled } = model.stepInfo(lastStep);
    const isToCome = status === "pending" || (status === "running" && scheduled == null);
    const comes = lastStep > firstStep && isToCome;
    const last = lastStep - firstStep;
    const isBusy = !this.status.paused && measures.running.at(last) + measures.waiting.at(last) > 0;
    return comes && isBusy ? lastStep - 1 : lastStep;
  }

  /** Stops following if the reader has moved: the store tells of it in its next frame, which may be too late. */
  #noticeMove() {
    if (this.shows && this.board.store.step !== this.#followed) this.following = false;
  }

  goToNewest() {
    this.#followed = this.newest;
    this.board.goTo(this.#followed);
  }

  takeStatus(status: ServerStatus) {
    super.takeStatus(status);
    if (this.#pending.length) this.schedule(); // paused: earlier events are due at once
    this.#noticeMove();
    if (this.following && this.shows) this.goToNewest(); // paused: the pending step with its arrivals counts
  }

  take({ count: events, text, joins }: EventsMessage) {
    const happened = joins ? events - 1 : events; // a keyframe is not an event of the run
    this.#pending.push({ text, happened });
    this.#waiting += happened;
    // A hidden page folds nothing, and may miss more events than it keeps.
    if (this.#missed || this.#waiting > this.limit / 2) {
      this.#missed += this.#waiting;
      this.#waiting = 0;
      this.#pending = [];
    }
  }

  /** Starts again from a keyframe: the first, or the first after a loss. */
  begin(isNew: boolean, dropped: number) {
    if (isNew) this.setNote("new-run", "The engine was restarted: this is a new run.");
    else if (dropped) this.#noteDropped(dropped);
    this.model = new Model();
    this.#trimmed = null;
    this.#pending = [];
    this.#waiting = this.#missed = 0;
  }

  #noteDropped(events: number) {
    this.setNote("dropped", `Dropped ${count(events, "event")}, joined again.`, events);
  }

  /** Milliseconds until the next picture may be drawn. */
  get #rest() {
    if (!this.shows || this.status.paused) return 0;
    return Math.max(0, this.#momentAt + MOMENT - performance.now());
  }

  /** Requests an animation frame: for the next picture when it is due, for a trimmed model at once. */
  schedule() {
    if (this.#scheduled) return;
    clearTimeout(this.#timer);
    const rest = this.#trimmed ? 0 : this.#rest;
    if (rest > 0) {
      this.#timer = setTimeout(() => this.schedule(), rest);
      return;
    }
    this.#scheduled = true;
    requestAnimationFrame((now) => this.#frame(now));
  }

  #frame(now: number) {
    this.#scheduled = false;
    if (this.board.signal.aborted) return;
    // The page gets as much time for other work as the last frame took.
    if (now - this.#idleSince < this.#cost) {
      this.schedule();
      return;
    }
    const began = performance.now();
    if (this.#missed) {
      this.#noteDropped(this.#missed);
      this.#missed = 0;
      this.startOver();
      return;
    }
    if (!this.#rest) this.#fold();
    this.#trim();
    this.#idleSince = performance.now();
    this.#cost = this.#idleSince - began;
    if (this.#pending.length || this.#trimmed) this.schedule();
  }

  #fold() {
    const model = this.model as Model;
    let text = "";
    while (this.#pending.length && text.length < PIECE) {
      const [next] = this.#pending.splice(0, 1);
      text += next.text;
      this.#waiting -= next.happened;
    }
    if (!text) return;
    const now = performance.now();
    this.board.isBusy = !this.status.paused && now - this.#momentAt < 2 * MOMENT;
    // The rest belongs to the same picture and is folded in the following frames.
    if (!this.#pending.length) this.#momentAt = now;
    if (!this.read(text)) return;
    if (model.stepCount === 0) this.#showEmpty();
    else if (this.shows) this.#grow();
    else if (!this.#pending.length) this.#open(); // not before all of a window's past is folded
  }

  #open() {
    const { board } = this;
    const model = this.model as Model;
    const selected = model.request(board.store.selected) ? board.store.selected : null;
    this.following = true;
    this.#followed = this.newest;
    board.open(model, { step: this.#followed, selected });
    this.showStatus();
  }

  #grow() {
    const { board } = this;
    this.#noticeMove();
    if (this.following) board.store.step = this.#followed = this.newest; // not `goTo`: it is drawn once, below
    if (board.time) board.time.pinned = this.following;
    board.grow();
    if (this.following) board.onChange(board.state());
    this.update();
  }

  /** Replaces a log that is too long by the same log without its first half. */
  #trim() {
    const { model, limit, board } = this;
    if (!this.#trimmed && model && this.shows && model.events.length > limit)
      this.#trimmed = new TrimmedModel(model, limit / 2);
    // A log that grows faster than this folds would never be trimmed, so the time grows with it.
    const excess = (model?.events.length ?? 0) / limit;
    if (!this.#trimmed?.advance(SPARE * excess ** 2)) return;
    const renewed = this.#trimmed.model;
    this.#trimmed = null;
    this.model = renewed;
    const { step, selected } = board.store;
    const { window } = board.time ?? {};
    board.open(renewed, { step, selected: renewed.request(selected) ? selected : null });
    if (window && window[0] >= renewed.firstStep) board.axis?.lookAt(window);
    this.setNote(
      "window",
      `Steps before ${renewed.firstStep} were removed from the window.`,
      renewed.firstStep,
    );
  }

  #showEmpty() {
    const { board } = this;
    if (!board.grid) {
      board.showMessage(
        "waiting",
        h("h2", "No requests yet."),
        h("p", "The engine is ready. The board appears as soon as a request arrives."),
      );
    }
    this.showStatus();
  }

  #showNothing(source: string, ended?: string) {
    if (!ended) this.setState("live", "Waiting");
    const words = ended || `The board appears when the first event of ${source} arrives.`;
    this.board.showMessage(
      "waiting",
      h("h2", `There is nothing to show${ended ? "" : " yet"}.`),
      h("p", words),
    );
  }

  showStatus() {
    const { paused, until, not_ready: problem, source, ended } = this.status;
    if (!this.run && source) this.#showNothing(source, ended);
    if (ended) this.setState("over", this.run ? `${source}: ${ended}` : `${source} cannot be read`);
    if (!this.run || ended) return;
    const words = problem
      ? `Live, but ${problem}`
      : until
        ? "Live. The engine runs until it is stopped"
        : paused
          ? "Live. The engine is paused"
          : "Live";
    this.setState(this.board.grid && !this.shows ? "over" : "live", words);
  }

  /** The counts of the step that the board shows, and the engine's own step if that is another one. */
  #showCounts() {
    const { board, shows, counts } = this;
    counts.hidden = !shows || !board.frame;
    if (counts.hidden) return;
    const { frame } = board;
    const { held, all } = frame.seats;
    const { free, cached } = frame.counts;
    const { num_blocks: blocks } = frame.state.settings;
    const model = this.model as Model;
    const parts = [
      !lacks(model, "settings", "admissions") && `${held} of ${all} seats taken`,
      !lacks(model, "queue") && `${frame.waitingCount} waiting`,
      !lacks(model, "free_blocks") && `${blocks - free - cached} of ${blocks} blocks used`,
    ].filter(Boolean);
    const frozen = this.following ? "" : `Frozen at step ${frame.step}. `;
    const at = this.following ? `Step ${frame.step}${parts.length ? ": " : ""}` : "";
    const words = `${frozen}${at}${parts.join(" · ")}`;
    setText(counts, words);
    counts.dataset.step = `${frame.step}`;
  }

  followWords() {
    const { newest, board } = this;
    return this.shows && board.store.step < newest ? `Jump to now, step ${newest}` : "Jump to now";
  }

  update() {
    this.#showCounts();
    this.board.root.dataset.held = `${!!this.status.paused}`;
    this.button.title = this.following ? "Stay at this step" : "Follow the newest step (N)";
    super.update();
  }
}
