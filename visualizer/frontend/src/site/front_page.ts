/** The front page's board: a recorded run that plays by itself until the reader takes over. */

import type { Board } from "../board/board.ts";
import { readAddress, writeAddress } from "../host/address.ts";
import { fetchBytes } from "../host/log_bytes.ts";
import { mount } from "../host/widget.ts";
import { namedIn, one } from "./boards.ts";

const HOLD = 4500; // ms at the moment that the run is about, long enough to read its sentence
const LEAD = 9; // steps before that moment
const SPEED = 2; // steps per second
const NARROW = 720; // px, as in board.js

/** Plays the run over and over, with a rest at one step, until it is stopped. */
class Loop {
  isOn = false;
  #rest: number | undefined;
  board: Board;
  moment: number;
  button: HTMLElement;

  constructor(board: Board, moment: number, button: HTMLElement) {
    this.board = board;
    this.moment = moment;
    this.button = button;
    board.store.speed = SPEED;
    board.store.listen((names) => this.#changed(names), board.signal);
    button.addEventListener("click", () => (this.isOn ? this.stop() : this.start()));
    // The board's own buttons and keys play and pause, too; anything else that the reader does there ends the loop.
    const root = board.root;
    root.addEventListener("pointerdown", ({ target }) => {
      if (!(target as HTMLElement).closest("button")) this.stop();
    });
    root.addEventListener("keydown", ({ key }) => {
      if (!["Tab", " ", "Enter"].includes(key)) this.stop();
    });
    new IntersectionObserver(([{ isIntersecting }]) => this.#seen(isIntersecting)).observe(root);
    this.#write();
  }

  start() {
    this.isOn = true;
    this.#play();
    this.#write();
  }

  stop() {
    this.isOn = false;
    clearTimeout(this.#rest);
    this.#rest = undefined;
    this.board.view.play(false);
    this.#write();
  }

  #play() {
    this.#rest = undefined;
    this.board.isBusy = true; // so that a screen reader does not announce every step
    this.board.view.play(true);
  }

  #changed(names: Set<string>) {
    if (!this.isOn) return;
    const { step, playing } = this.board.store;
    const { lastStep } = this.board.model;
    if (names.has("step") && [this.moment, lastStep].includes(step)) {
      this.#rest = setTimeout(() => this.#play(), HOLD);
      this.board.view.play(false);
    } else if (!playing && this.#rest === undefined) this.stop();
  }

  /** Plays only what is on the screen. */
  #seen(isSeen: boolean) {
    if (!this.isOn) return;
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => this.#play(), isSeen ? 0 : 1e8);
    if (!isSeen) this.board.view.play(false);
  }

  #write() {
    this.board.isBusy = this.isOn;
    this.button.textContent = this.isOn ? "Pause" : "Play";
    this.button.hidden = false;
    document.documentElement.dataset.loop = `${this.isOn}`;
  }
}

const host = one("main > .board");
const { log, title, opening } = namedIn(host);
const moment = opening.step;
const asked = readAddress(location.hash);
const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches || asked.step !== undefined;
const gallery = new URL(host.dataset.page ?? "", location.href);

const board = (await mount(host, {
  ...opening,
  step: isStill ? moment : moment - LEAD,
  only: host.clientWidth < NARROW ? "timeline" : null,
  ...asked,
  log: await fetchBytes(log),
  address: false,
  linkOf: (state) => gallery + writeAddress(state),
})) as Board;
board.about = { title, caption: "" };
const loop = new Loop(board, moment, one("#loop"));
if (!isStill) loop.start();
