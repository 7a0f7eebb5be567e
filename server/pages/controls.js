/**
 * The teacher's controls: pause, step, resume, run until something happens, hold prompts and release them
 * together. The feed's status says what the engine does, so the page does not poll.
 */

import { restartWords } from "/page/restart.js";

export class Controls {
  /** `send(verb, body)` posts a command and returns the answer, or null after an error. */
  constructor(byId, send) {
    Object.assign(this, { byId, send });
    for (const verb of ["pause", "resume", "step"])
      byId(verb).addEventListener("click", () => send(verb));
    byId("hold").addEventListener("click", () => send("hold_submissions"));
    byId("release").addEventListener("click", () => send("release_submissions"));
    this.untils = [...byId("engine").querySelectorAll("[data-until]")];
    for (const button of this.untils)
      button.addEventListener("click", () => this.#runUntil(button.dataset.until));
  }

  /** Shows what can be done now. */
  update(live, connected) {
    const { status } = live;
    const { byId } = this;
    const { paused, until, holding } = status;
    byId("engine").hidden = !status.controls;
    const isRunning = !paused || !!until;
    enable(byId("pause"), connected && isRunning, isRunning);
    enable(byId("resume"), connected && paused && !until, !isRunning);
    enable(byId("step"), connected && paused && !until);
    for (const button of this.untils) {
      button.disabled = !connected || !!until;
      button.setAttribute("aria-pressed", button.dataset.until === until);
    }
    this.#showFirstToken(live);
    enable(byId("hold"), connected, !holding);
    enable(byId("release"), connected, holding);
    const count = status.held?.length ?? 0;
    setText(byId("release"), count ? `Release all ${count}` : "Release");
    const stopped = stopWords(live) || restartWords(status);
    setText(byId("stopped"), until ? `Runs until ${words(until)} …` : stopped);
  }

  /** The selected request's first token can be waited for while it has none. */
  #showFirstToken({ model, board }) {
    const span = model?.request(board.store.selected ?? -1);
    const button = this.untils.find(({ dataset }) => dataset.until === "first_token");
    this.request = span && !span.finished && !span.tokenSteps.length ? span.id : null;
    button.hidden = this.request == null;
    if (!button.hidden) setText(button, `${span.name}'s first token`);
  }

  #runUntil(until) {
    const count = this.byId("count");
    if (until === "steps" && !count.reportValidity()) return;
    const body = { until };
    if (until === "steps") body.steps = Number(count.value);
    if (until === "first_token") body.request = this.request;
    this.send("run_until", body);
  }
}

/** Why the engine stopped, for all viewers; "" if it did not, or if the page has yet to read that step. */
function stopWords({ model, status: { stopped } }) {
  if (!stopped) return "";
  const { step, reason, request } = stopped;
  if (model?.lastStep < step) return ""; // the state comes before the picture, which knows the request's name
  const name = request && (model?.request(request)?.name ?? `r${request}`);
  return `Stopped after step ${step}: ${reasons(reason, name)}.`;
}

const words = (until) =>
  ({
    preemption: "a preemption",
    eviction: "an eviction",
    finish: "a request ends",
    arrival: "a request arrives",
    waiting: "another request waits",
    first_token: "the first token",
    steps: "the steps have run",
  })[until];

const reasons = (reason, name) =>
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
  })[reason];

/** Enables a button; of two that stand for each other, only one is shown, and it keeps the focus. */
function enable(button, isEnabled, isShown = true) {
  button.disabled = !isEnabled;
  if (button.hidden === !isShown) return;
  const hadFocus = button === document.activeElement;
  button.hidden = !isShown;
  if (hadFocus) button.parentElement.querySelector("button:not([hidden])")?.focus();
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
