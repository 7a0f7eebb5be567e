/**
 * The teacher's controls: pause, step, resume, run until something happens, hold prompts and release them
 * together. The feed's status says what the engine does, so the page does not poll.
 */

import { type ServerStatus, setText } from "../../visualizer/frontend/src/live/live.ts";
import type { Model } from "../../visualizer/frontend/src/model/index.ts";
import { byId, type Send } from "./page.ts";
import { restartWords } from "./restart.ts";

/** What the controls read of a live board. */
interface Viewed {
  status: ServerStatus;
  model?: Model | null;
  board: { store: { selected: number | null } };
}

export class Controls {
  untils: HTMLButtonElement[];
  request: number | null = null;
  send: Send;

  constructor(send: Send) {
    this.send = send;
    for (const verb of ["pause", "resume", "step"])
      byId(verb).addEventListener("click", () => send(verb));
    byId("hold").addEventListener("click", () => send("hold_submissions"));
    byId("release").addEventListener("click", () => send("release_submissions"));
    this.untils = [...byId("engine").querySelectorAll<HTMLButtonElement>("[data-until]")];
    for (const button of this.untils)
      button.addEventListener("click", () => this.#runUntil(button.dataset.until));
  }

  /** Shows what can be done now. */
  update(live: Viewed, connected: boolean) {
    const { status } = live;
    const { paused = false, until = "", holding = false } = status;
    byId("engine").hidden = !status.controls;
    const isRunning = !paused || !!until;
    enable("pause", connected && isRunning, isRunning);
    enable("resume", connected && paused && !until, !isRunning);
    enable("step", connected && paused && !until);
    for (const button of this.untils) {
      button.disabled = !connected || !!until;
      button.setAttribute("aria-pressed", String(button.dataset.until === until));
    }
    this.#showFirstToken(live);
    enable("hold", connected, !holding);
    enable("release", connected, holding);
    const count = status.held?.length ?? 0;
    setText(byId("release"), count ? `Release all ${count}` : "Release");
    const stopped = stopWords(live) || restartWords(status);
    setText(byId("stopped"), until ? `Runs until ${words(until)} …` : stopped);
  }

  /** The selected request's first token can be waited for while it has none. */
  #showFirstToken({ model, board }: Viewed) {
    const span = model?.request(board.store.selected ?? -1);
    this.request = span && !span.finished && !span.tokenSteps.length ? span.id : null;
    const button = this.untils.find(({ dataset }) => dataset.until === "first_token");
    if (!button) return;
    button.hidden = this.request === null;
    if (span && !button.hidden) setText(button, `${span.name}'s first token`);
  }

  #runUntil(until = "") {
    const count = byId<HTMLInputElement>("count");
    if (until === "steps" && !count.reportValidity()) return;
    const body: { until: string; steps?: number; request?: number | null } = { until };
    if (until === "steps") body.steps = Number(count.value);
    if (until === "first_token") body.request = this.request;
    this.send("run_until", body);
  }
}

/** Why the engine stopped, for all viewers; "" if it did not, or if the page has yet to read that step. */
function stopWords({ model, status: { stopped } }: Viewed) {
  if (!stopped) return "";
  const { step, reason, request } = stopped;
  if (model && model.lastStep < step) return ""; // the state comes before the picture, which knows the request's name
  const name = model?.request(request)?.name ?? `r${request}`;
  return `Stopped after step ${step}: ${reasons(reason, name)}.`;
}

const words = (until: string) =>
  (
    ({
      preemption: "a preemption",
      eviction: "an eviction",
      finish: "a request ends",
      arrival: "a request arrives",
      waiting: "another request waits",
      first_token: "the first token",
      steps: "the steps have run",
    }) as Record<string, string>
  )[until];

const reasons = (reason: string, name: string) =>
  (
    ({
      preemption: `${name} was preempted`,
      eviction: `cached blocks were evicted for ${name}`,
      finish: `${name} ended`,
      arrival: `${name} arrived`,
      waiting: `${name} was left waiting`,
      first_token: `${name} got its first token`,
      steps: "all steps have run",
      idle: "no request is left",
      paused: "the engine was paused",
      resumed: "the engine was resumed",
    }) as Record<string, string>
  )[reason];

/** Enables a button; of two that stand for each other, only one is shown, and it keeps the focus. */
function enable(id: string, isEnabled: boolean, isShown = true) {
  const button = byId<HTMLButtonElement>(id);
  button.disabled = !isEnabled;
  if (button.hidden === !isShown) return;
  const hadFocus = button === document.activeElement;
  button.hidden = !isShown;
  if (hadFocus) button.parentElement?.querySelector<HTMLElement>("button:not([hidden])")?.focus();
}
