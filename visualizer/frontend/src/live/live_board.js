/**
 * A board that follows a running engine. Messages come from a feed (`live_feed.js`, or a notebook's kernel);
 * what they bring is folded and drawn at most once a frame, and takes at most half of the time.
 *
 * An engine takes more steps a second than a class can read, so a moment stands for a while, all of it: events
 * wait, unfolded, until the next moment is drawn. No word and no picture is ahead of the others. Of a held
 * engine every step is drawn at once.
 *
 * While it follows, the cursor stays on the newest step: of a held engine the one that is to come, with who has
 * arrived for it, else the last that was computed. Whoever moves it looks back, and the log goes on growing
 * meanwhile; moving to the newest step, or N, follows again. A lost connection leaves the picture, greyed. Memory is bounded: see `trimmed_model.js`.
 */

import { h } from "../drawing/html.js";
import { LogError, Model } from "../model/index.js";
import css from "./live.css";
import { TrimmedModel } from "./trimmed_model.js";

const LIMIT = 200_000; // events
const PIECE = 1 << 18; // characters folded between two frames
const MOMENT = 500; // ms that a moment stands while the engine runs
const SPARE = 4; // ms a frame for the window that is to come

const encoder = new TextEncoder();
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

export class LiveBoard {
  following = true;
  run = "";
  model = null;
  status = {};
  #next = -1; // number of the next event
  #pending = []; // what was not folded yet
  #waiting = 0; // events of it
  #missed = 0; // events thrown away, because the page did not get to fold them
  #joining = false; // a keyframe was asked for
  #scheduled = false;
  #cost = 0;
  #idleSince = 0;
  #successor = null;
  #momentAt = -Infinity; // when the moment that is shown was drawn
  #timer = null; // of the next moment

  /** `rejoin()` asks the feed for a keyframe; `told(live)` hears of every change of what is known. */
  constructor(board, { rejoin, told = () => {}, limit = LIMIT }) {
    Object.assign(this, { board, rejoin, told, limit });
    this.words = h("span", { role: "status" });
    this.note = h("span", { class: "muted", role: "status" });
    this.button = h("button", { type: "button" });
    this.button.addEventListener("click", () => this.follow(!this.following));
    board.isLive = true;
    board.root.append(h("style", {}, css));
    const mark = h("i", { "aria-hidden": "true" });
    board.root.append(h("div", { class: "live" }, mark, this.words, this.note, this.button));
    const { signal, root, store } = board;
    const key = (event) => {
      if (event.target.closest("input, textarea") || event.ctrlKey || event.metaKey) return;
      if (this.shows && (event.key === "n" || event.key === "End")) this.follow(true);
    };
    root.addEventListener("keydown", key, { signal });
    const moved = (names) => {
      if (names.has("step") && this.shows) this.follow(store.step >= this.newest);
    };
    store.listen(moved, signal);
    this.#say("connecting", "Connecting");
  }

  /** Does the board show what this feed brings? */
  get shows() {
    return !!this.model && this.board.model === this.model;
  }

  /**
   * The step to follow. One that is not scheduled yet says little, and while the engine runs there would be such a
   * one every time somebody arrives; it is left out if it is about to begin.
   */
  get newest() {
    const { firstStep, lastStep, measures } = this.model;
    const { status, scheduled } = this.model.stepInfo(lastStep);
    const isToCome = status === "pending" || (status === "running" && scheduled == null);
    const comes = lastStep > firstStep && isToCome;
    const last = lastStep - firstStep;
    const isBusy = !this.status.paused && measures.running[last] + measures.waiting[last] > 0;
    return comes && isBusy ? lastStep - 1 : lastStep;
  }

  /** Stays on the newest step from now on, or stays where it is. */
  follow(on) {
    this.following = on;
    if (on && this.shows) this.board.goTo(this.newest);
    this.#tell();
  }

  /** Handles a message of the feed. */
  receive(message) {
    if (message.type === "events") this.#take(message);
    else if (message.type === "status") {
      this.status = message.status;
      this.#live();
      if (this.#pending.length) this.#schedule(); // held: what happened before is due at once
      if (this.following && this.shows) this.board.goTo(this.newest); // held: now who arrived counts
    } else if (message.type === "lost") {
      const what = this.run
        ? "The connection is lost: reconnecting"
        : "No server answers: trying again";
      this.#say("lost", `${what} in ${message.seconds} s`);
    } else if (message.type === "slow") {
      const why = "A browser opens six connections to one server: close other tabs that show it";
      this.#say("connecting", `No answer for ${message.seconds} s. ${why}`);
    } else if (message.type === "refused") {
      this.#say("refused", "This server asks for a key");
    }
  }

  #take({ run, first, count: events, text, joins, dropped }) {
    if (joins) this.#begin(run, dropped);
    else if (run !== this.run || this.#joining) return;
    else if (first !== this.#next) {
      this.#joinAnew();
      return;
    }
    this.#next = first + events;
    const happened = joins ? events - 1 : events; // a keyframe is no event of the run
    this.#pending.push({ text, happened });
    this.#waiting += happened;
    // A page that is not shown folds nothing; what it misses may be more than it wants to keep.
    if (this.#missed || this.#waiting > this.limit / 2) {
      this.#missed += this.#waiting;
      this.#waiting = 0;
      this.#pending = [];
    }
    this.#live();
    this.#schedule();
  }

  #joinAnew() {
    this.#joining = true;
    this.rejoin();
  }

  /** A keyframe: the first, or the first after something was lost. */
  #begin(run, dropped) {
    if (this.run && run !== this.run) {
      this.#remark("new-run", "The server was started again: this is a new run.");
    } else if (dropped) {
      this.#remark("dropped", `Dropped ${count(dropped, "event")}: joined anew.`, dropped);
    }
    this.run = run;
    if (this.board.time) this.board.time.lanesKept = null;
    this.model = new Model();
    this.#successor = null;
    this.#pending = [];
    this.#waiting = this.#missed = 0;
    this.#joining = false;
  }

  /** Milliseconds until the next moment may be drawn. */
  get #rest() {
    if (!this.shows || this.status.paused) return 0;
    return Math.max(0, this.#momentAt + MOMENT - performance.now());
  }

  /** Asks for a frame: for the next moment when it is due, for a successor at once. */
  #schedule() {
    if (this.#scheduled) return;
    clearTimeout(this.#timer);
    const rest = this.#successor ? 0 : this.#rest;
    if (rest > 0) {
      this.#timer = setTimeout(() => this.#schedule(), rest);
      return;
    }
    this.#scheduled = true;
    requestAnimationFrame((now) => this.#frame(now));
  }

  #frame(now) {
    this.#scheduled = false;
    if (this.board.signal.aborted) return;
    // As long as drawing took, the page is left to whatever else it has to do.
    if (now - this.#idleSince < this.#cost) {
      this.#schedule();
      return;
    }
    const began = performance.now();
    if (this.#missed) {
      this.#remark(
        "dropped",
        `Dropped ${count(this.#missed, "event")}: joined anew.`,
        this.#missed,
      );
      this.#missed = 0;
      this.#joinAnew();
      return;
    }
    if (!this.#rest) this.#fold();
    this.#patchChildren();
    this.#idleSince = performance.now();
    this.#cost = this.#idleSince - began;
    if (this.#pending.length || this.#successor) this.#schedule();
  }

  #fold() {
    let text = "";
    while (this.#pending.length && text.length < PIECE) {
      const next = this.#pending.shift();
      text += next.text;
      this.#waiting -= next.happened;
    }
    if (!text) return;
    const now = performance.now();
    this.board.isBusy = !this.status.paused && now - this.#momentAt < 2 * MOMENT;
    // What is left is of the same moment: it is folded in the frames that follow.
    if (!this.#pending.length) this.#momentAt = now;
    try {
      this.model.read(encoder.encode(text));
    } catch (error) {
      if (!(error instanceof LogError)) throw error;
      this.#say("refused", `What the server sent cannot be drawn: ${error.reason}`);
      return;
    }
    if (this.model.stepCount === 0) this.#sayNothingYet();
    else if (this.shows) this.#grow();
    else this.#open();
  }

  #open() {
    const { board, model } = this;
    const selected = model.request(board.store.selected) ? board.store.selected : null;
    this.following = true;
    board.open(model, { step: this.newest, selected });
    this.#live();
  }

  #grow() {
    const { board } = this;
    if (this.following) board.store.step = this.newest; // not `goTo`: it is drawn once, below
    if (board.time) board.time.pinned = this.following;
    board.grow();
    if (this.following) board.onChange(board.state());
    this.#tell();
  }

  /** Before the log is too long: the same log without its first half. */
  #patchChildren() {
    const { model, limit, board } = this;
    if (!this.#successor && this.shows && model.events.length > limit)
      this.#successor = new TrimmedModel(model, limit / 2);
    if (!this.#successor?.advance(SPARE)) return;
    const renewed = this.#successor.model;
    this.#successor = null;
    this.model = renewed;
    const { step, selected } = board.store;
    const { window } = board.time ?? {};
    board.time?.keepLanes(renewed);
    board.open(renewed, { step, selected: renewed.request(selected) ? selected : null });
    if (window?.[0] >= renewed.firstStep) board.axis?.lookAt(window);
    this.#remark(
      "window",
      `Steps before ${renewed.firstStep} have left the window.`,
      renewed.firstStep,
    );
  }

  #sayNothingYet() {
    const { board } = this;
    if (!board.grid) {
      board.showMessage(
        "waiting",
        h("h2", {}, "Nothing has been asked yet."),
        h(
          "p",
          {},
          "The engine is ready. What it does will be drawn here as soon as a request arrives.",
        ),
      );
    }
    this.#live();
  }

  #live() {
    if (!this.run) return;
    const { paused, not_ready: problem } = this.status;
    const words = problem ? `Live, but ${problem}` : paused ? "Live. The engine is held" : "Live";
    this.#say(this.board.grid && !this.shows ? "over" : "live", words);
  }

  #say(state, words) {
    this.board.root.dataset.live = state;
    if (this.words.textContent !== words) this.words.textContent = words;
    this.#tell();
  }

  /** `about` names what happened, `number` says how many or from where. */
  #remark(about, words, number = "") {
    this.note.textContent = words;
    Object.assign(this.note.dataset, { about, number });
  }

  #tell() {
    const { root, store } = this.board;
    Object.assign(root.dataset, {
      following: this.following,
      run: this.run,
      held: !!this.status.paused,
    });
    this.button.hidden = !this.shows;
    this.button.setAttribute("aria-pressed", this.following);
    const now = this.shows && store.step < this.newest ? `, step ${this.newest}` : "";
    const words = this.following ? "Following" : `Jump to now${now}`;
    if (this.button.textContent !== words) this.button.textContent = words;
    this.button.title = this.following ? "Stay at this step" : "Follow the newest step (N)";
    this.told(this);
  }
}
