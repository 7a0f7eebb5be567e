/**
 * The teacher's controls: pause, step, resume, run until something happens, hold prompts and release them
 * together. What the engine does is in the feed's status; nothing is polled.
 */

export class Controls {
  #ran = ""; // the last run, in words

  /** `send(verb, body)` posts a command and returns the answer, or null after an error. */
  constructor(byId, send) {
    Object.assign(this, { byId, send });
    for (const verb of ["pause", "resume", "step"])
      byId(verb).addEventListener("click", () => this.#command(verb));
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
    if (!paused && !until) this.#ran = "";
    setText(byId("stopped"), until ? `Runs until ${words(until)} …` : this.#ran);
  }

  /** The selected request's first token can be waited for while it has none. */
  #showFirstToken({ model, board }) {
    const span = model?.request(board.store.selected ?? -1);
    const button = this.untils.find(({ dataset }) => dataset.until === "first_token");
    this.request = span && !span.finished && !span.tokenSteps.length ? span.id : null;
    button.hidden = this.request == null;
    if (!button.hidden) setText(button, `${span.name}'s first token`);
    this.nameOf = (id) => model?.request(id)?.name ?? `r${id}`;
  }

  #command(verb) {
    this.#ran = "";
    this.send(verb);
  }

  async #runUntil(until) {
    const count = this.byId("count");
    if (until === "steps" && !count.reportValidity()) return;
    const body = { until };
    if (until === "steps") body.steps = Number(count.value);
    if (until === "first_token") body.request = this.request;
    const stopped = await this.send("run_until", body);
    if (!stopped) return;
    const { step, reason, request } = stopped;
    this.#ran = `Stopped after step ${step}: ${reasons(reason, request && this.nameOf(request))}.`;
    setText(this.byId("stopped"), this.#ran);
  }
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
