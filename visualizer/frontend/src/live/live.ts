/**
 * What the boards of a running engine and of a running cluster have in common: messages of a feed (`live_feed.ts`), the
 * line above the board that says how the connection is, and whether the board follows the newest moment. A picture stays
 * for half a second; events wait, unfolded, until the next one.
 */

import type { Shell } from "../board/shell.ts";
import { closest, h } from "../drawing/html.ts";
import { LogError } from "../model/index.ts";
import css from "./live.css";

/** what the log does not say; empty before the server has said it */
export interface ServerStatus {
  run?: string;
  model?: string;
  chats?: boolean;
  paused?: boolean;
  until?: string; // what a paused engine runs until, or ""
  stopped?: { step: number; reason: string; request: number | null } | null;
  holding?: boolean; // whether prompts are held
  held?: string[]; // their names
  screen?: number | null; // the earlier step that the projector's screen looks back at
  not_ready?: string; // why the server accepts no requests, or ""
  previous?: { run: string; changed: Record<string, [unknown, unknown]>; prompts: string } | null;
  controls?: boolean; // whether this page may pause the engine
  key?: boolean; // whether the server requires one
  trace_text?: "on" | "off";
  trace_error?: string; // why the file of the run ends here
  source?: string; // the file or feed that is followed, if no server of this project sends the status
  ended?: string; // why nothing more can be read of it, or ""
  router?: string; // of a gateway
  replicas?: { id: string; ready: boolean; not_ready: string }[];
}

export type EventsMessage = {
  type: "events";
  run: string;
  first: number;
  count: number;
  text: string;
  joins: boolean;
  dropped: number;
};

/** see `live_feed.ts` */
export type FeedMessage =
  | EventsMessage
  | { type: "status"; status: ServerStatus }
  | { type: "lost" | "slow"; seconds: number }
  | { type: "refused"; status: number };

export interface LiveOptions<Self> {
  rejoin: () => void; // asks the feed for a new beginning
  onChange?: (live: Self) => void; // called after every change
  limit?: number; // of what the page keeps: events, or lines
}

export const MOMENT = 500; // ms that a picture stays while the engine runs

const encoder = new TextEncoder();

export abstract class Live<
  On extends Shell & { model?: unknown },
  Read extends { read: (bytes: Uint8Array) => void },
> {
  following = true;
  run = "";
  model: Read | null = null;
  status: ServerStatus = {};
  /** Number of the next event. */
  next = -1;
  /** Whether a new beginning was requested. */
  joining = false;
  board: On;
  rejoin: () => void;
  onChange: (live: any) => void;
  limit: number;
  words = h("span", { role: "status" });
  note = h("span.muted", { role: "status" });
  counts = h("span.counts.muted");
  button = h("button", { click: () => this.follow(!this.following) });
  /** What sends the feed. */
  abstract sender: "server" | "gateway";

  constructor(board: On, { rejoin, onChange = () => {} }: LiveOptions<any>, limit: number) {
    this.board = board;
    this.rejoin = rejoin;
    this.onChange = onChange;
    this.limit = limit;
    const mark = h("i", { "aria-hidden": "true" });
    board.root.append(
      h("style", css),
      h("div.live.flow", mark, this.words, this.counts, this.note, this.button),
    );
    board.root.addEventListener("keydown", (event) => {
      if (closest(event, "input, textarea") || event.ctrlKey || event.metaKey) return;
      if (this.takesKeys && (event.key === "n" || event.key === "End")) this.follow(true);
    });
  }

  /** Whether the board shows this feed's model. */
  get shows() {
    return !!this.model && this.board.model === this.model;
  }

  get takesKeys() {
    return this.shows;
  }

  /** Starts or stops following the newest moment. */
  follow(on: boolean) {
    this.following = on;
    if (on && this.shows) this.goToNewest();
    this.update();
  }

  abstract goToNewest(): void;

  /** Handles a message of the feed. */
  receive(message: FeedMessage) {
    if (message.type === "events") this.#takeEvents(message);
    else if (message.type === "status") this.takeStatus(message.status);
    else if (message.type === "lost") {
      const what = this.run
        ? "The connection is lost. Reconnecting"
        : `The ${this.sender} does not answer. Trying again`;
      this.setState("lost", `${what} in ${message.seconds} s`);
    } else if (message.type === "slow") {
      const why =
        "A browser opens at most six connections to one server. Close other tabs that show it";
      this.setState("connecting", `No answer for ${message.seconds} s. ${why}`);
    } else this.setState("refused", `This ${this.sender} requires a key`);
  }

  takeStatus(status: ServerStatus) {
    this.status = status;
    this.showStatus();
  }

  #takeEvents(message: EventsMessage) {
    const { run, first, count, joins, dropped } = message;
    if (joins) {
      this.begin(!!this.run && run !== this.run, dropped);
      this.run = run;
      this.joining = false;
    } else if (run !== this.run || this.joining) return;
    else if (first !== this.next) {
      this.startOver();
      return;
    }
    this.next = first + count;
    this.take(message);
    this.showStatus();
    this.schedule();
  }

  startOver() {
    this.joining = true;
    this.rejoin();
  }

  /** Begins with a new model: of a new run, or after events were dropped. */
  abstract begin(isNew: boolean, dropped: number): void;

  /** Keeps the lines of a message until they are due. */
  abstract take(message: EventsMessage): void;

  /** Has them read when they are due. */
  abstract schedule(): void;

  /** Reads lines into the model; returns whether they can be drawn. */
  read(text: string) {
    try {
      this.model?.read(encoder.encode(text));
      return true;
    } catch (error) {
      if (!(error instanceof LogError)) throw error;
      this.setState("refused", `The ${this.sender}'s events cannot be drawn: ${error.reason}`);
      return false;
    }
  }

  /** Says what the feed's last status is. */
  abstract showStatus(): void;

  setState(state: string, words: string) {
    this.board.root.dataset.live = state;
    setText(this.words, words);
    this.update();
  }

  /** Says what happened, until it says the next. `about` names it, `number` says how many or from where. */
  setNote(about: string, words: string, number: number | string = "") {
    this.note.textContent = words;
    Object.assign(this.note.dataset, { about, number });
  }

  /** What the button says. */
  abstract followWords(): string;

  update() {
    const { button, following, run } = this;
    Object.assign(this.board.root.dataset, { following, run });
    button.hidden = !this.shows;
    button.setAttribute("aria-pressed", `${following}`);
    setText(button, following ? "Following" : this.followWords());
    this.onChange(this);
  }
}

/** Sets a text only when it changes, because a screen reader reads it aloud. */
export function setText(element: HTMLElement, words: string) {
  if (element.textContent !== words) element.textContent = words;
}
