/** The prompt box, and the prompts that were sent from this page. */

import { Stream } from "/page/stream.js";

/** Browsers open six connections per server. The feed uses one, and a button needs one. */
const MAX_RUNNING = 4;
const MAX_SHOWN = 20;
const NAME = "underglass name";

export class Prompts {
  /** `select(id)` shows a request on the board. */
  constructor({ form, list, model, headers, select }) {
    Object.assign(this, { form, list, model, headers, select });
    this.streams = [];
    this.chats = false; // whether the model does
    const { name, text } = form.elements;
    name.value = localStorage.getItem(NAME) ?? "";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send(text.value);
      text.value = "";
      this.fit();
    });
    // Enter sends, as in a chat; shift and Enter start a new line.
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
    text.addEventListener("input", () => this.fit());
  }

  get running() {
    return this.streams.filter((stream) => stream.runs).length;
  }

  /** Whether a prompt is sent as a chat. */
  get isChat() {
    return this.chats && !this.form.elements.raw.checked;
  }

  /** The id of the newest prompt's request in the log; null before it is there, or after a restart without it. */
  get request() {
    const [newest] = this.streams;
    return newest?.isShown ? newest.request : null;
  }

  send(text) {
    const { name, tokens } = this.form.elements;
    if (this.running >= MAX_RUNNING) return;
    localStorage.setItem(NAME, name.value);
    const prompt = {
      prompt: text,
      isChat: this.isChat,
      name: name.value.trim(),
      maxTokens: Number(tokens.value),
      model: this.model,
      headers: this.headers(),
    };
    const stream = new Stream(prompt, () => this.enable(), this.select);
    this.streams.unshift(stream);
    this.list.prepend(stream.element);
    for (const old of this.streams.splice(MAX_SHOWN)) old.remove();
    this.enable();
  }

  /** Update each prompt from the log. */
  show(live) {
    for (const stream of this.streams) stream.show(live);
  }

  enable() {
    const { send } = this.form.elements;
    const full = this.running >= MAX_RUNNING;
    send.disabled = full;
    send.title = full
      ? `${MAX_RUNNING} of your prompts are running: wait for one to finish, or stop one`
      : "";
  }

  /** Fit the box to its text, up to the style's maximum. */
  fit() {
    const { text } = this.form.elements;
    text.style.height = "auto";
    text.style.height = `${text.scrollHeight + 2}px`;
  }
}
