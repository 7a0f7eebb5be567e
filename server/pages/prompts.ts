/** The prompt box, and the prompts that were sent from this page. */

import type { ServerStatus } from "../../visualizer/frontend/src/live/live.ts";
import { byId } from "./page.ts";
import { type Live, Stream } from "./stream.ts";
import { showSuggestions } from "./suggestions.ts";

/** The form's fields by name. */
type Fields = HTMLFormControlsCollection & {
  name: HTMLInputElement;
  text: HTMLTextAreaElement;
  tokens: HTMLInputElement;
  raw: HTMLInputElement;
  send: HTMLButtonElement;
};

interface Options {
  form: HTMLFormElement;
  list: HTMLElement;
  model: string | null;
  headers: () => Record<string, string>;
  select: (request: number, stream: Stream) => void; // shows a request on the board
}

/** Browsers open six connections per server. The feed uses one, and a button needs one. */
const MAX_RUNNING = 4;
const MAX_SHOWN = 20;
const NAME = "underglass name";

export class Prompts {
  streams: Stream[] = [];
  chats = false; // whether the model does
  options: Options;
  fields: Fields;

  constructor(options: Options) {
    this.options = options;
    const { form } = options;
    this.fields = form.elements as Fields;
    const { name, text } = this.fields;
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

  get isFull() {
    return this.streams.filter((stream) => stream.runs).length >= MAX_RUNNING;
  }

  /** Whether a prompt is sent as a chat. */
  get isChat() {
    return this.chats && !this.fields.raw.checked;
  }

  /** The id of the newest prompt's request in the log; null before it is there, or after a restart without it. */
  get request() {
    const [newest] = this.streams;
    return newest?.isShown ? newest.request : null;
  }

  send(text: string) {
    const { name, tokens } = this.fields;
    const { list, model, headers, select } = this.options;
    if (this.isFull) return;
    localStorage.setItem(NAME, name.value);
    const prompt = {
      prompt: text,
      isChat: this.isChat,
      name: name.value.trim(),
      maxTokens: Number(tokens.value),
      model,
      headers: headers(),
    };
    const stream = new Stream(prompt, () => this.enable(), select);
    this.streams.unshift(stream);
    list.prepend(stream.element);
    for (const old of this.streams.splice(MAX_SHOWN)) old.remove();
    this.enable();
  }

  /** Shows what the model takes, prompts to try, and what the log says of each prompt. */
  show({ run, chats }: ServerStatus, logOf: (stream: Stream) => Live) {
    if (run) {
      byId("how").hidden = !chats;
      this.chats = !!chats;
      showSuggestions(byId("chips"), this.isChat, (prompt) => this.send(prompt));
    }
    for (const stream of this.streams) stream.show(logOf(stream));
    document.body.toggleAttribute("data-sent", this.streams.length > 0);
  }

  enable() {
    const { send } = this.fields;
    send.disabled = this.isFull;
    send.title = send.disabled
      ? `${MAX_RUNNING} of your prompts are running: wait for one to finish, or stop one`
      : "";
  }

  /** Fit the box to its text, up to the style's maximum. */
  fit() {
    const { text } = this.fields;
    text.style.height = "auto";
    text.style.height = `${text.scrollHeight + 2}px`;
  }
}
