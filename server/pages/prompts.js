/** The box that sends prompts, and what became of those sent from here. */

import { Stream } from "/page/stream.js";

/** A browser opens six connections to one server; the feed has one, and a button needs one. */
const AT_ONCE = 4;
const KEPT = 20;
const NAME = "underglass name";

export class Prompts {
  /** `select(id)` shows a request on the board. */
  constructor({ form, list, model, headers, select }) {
    Object.assign(this, { form, list, model, headers, select });
    this.streams = [];
    const { name, text } = form.elements;
    name.value = localStorage.getItem(NAME) ?? "";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    // Enter sends, as in a chat; with shift it begins a line.
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

  send() {
    const { name, text, tokens } = this.form.elements;
    if (this.running >= AT_ONCE) return;
    localStorage.setItem(NAME, name.value);
    const asked = {
      prompt: text.value,
      name: name.value.trim(),
      maxTokens: Number(tokens.value),
      model: this.model,
      headers: this.headers(),
    };
    const stream = new Stream(asked, () => this.enable(), this.select);
    this.streams.unshift(stream);
    this.list.prepend(stream.element);
    for (const old of this.streams.splice(KEPT)) old.leave();
    text.value = "";
    this.fit();
    this.enable();
  }

  /** What the log knows of each. */
  show(live) {
    for (const stream of this.streams) stream.show(live);
  }

  enable() {
    const { send } = this.form.elements;
    const full = this.running >= AT_ONCE;
    send.disabled = full;
    send.title = full ? `${AT_ONCE} of your prompts are running: wait for one, or stop it` : "";
  }

  /** The box is as high as its text, up to some lines. */
  fit() {
    const { text } = this.form.elements;
    text.style.height = "auto";
    text.style.height = `${text.scrollHeight + 2}px`;
  }
}
