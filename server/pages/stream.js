/**
 * One prompt that was sent from this page: its text as it comes, and its story in a line.
 *
 * The text comes over the request's own connection, in OpenAI's form. When it arrived, its time to first
 * token and its place on the board are the event log's, so that they are what the pictures show. All of it
 * is set as text: a prompt is never markup.
 */

import { createParser, duration } from "/board/board.js";

const WORDS = {
  stop: "finished: it came to its end",
  length: "finished: its tokens are used up",
  abort: "stopped",
};

function make(tag, className, text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

export class Stream {
  runs = true;
  request = null; // id in the event log
  reason = "";
  tokens = 0;
  ttft = null; // ms
  #ending = new AbortController();
  #seen = false;

  /** Sends the prompt. `changed()` hears of its end, `select(id)` shows it on the board. */
  constructor({ prompt, name, maxTokens, model, headers }, changed, select) {
    Object.assign(this, { changed, select });
    this.element = make("li", "stream");
    this.chip = make("button", "name");
    this.chip.type = "button";
    this.chip.disabled = true;
    this.swatch = make("i", "");
    this.chip.append(this.swatch, name || "You");
    this.chip.addEventListener("click", () => this.select(this.request));
    this.words = make("span", "words", "sending");
    this.words.setAttribute("role", "status");
    this.stopButton = make("button", "stop", "Stop");
    this.stopButton.type = "button";
    this.stopButton.addEventListener("click", () => this.stop());
    const head = make("div", "head");
    head.append(this.chip, this.words, this.stopButton);
    this.text = make("span", "text");
    const body = make("p", "body");
    body.append(make("span", "prompt", prompt), this.text);
    this.element.append(head, body);
    // `user` is the label in the log, like the header X-Client, which could not carry every alphabet.
    const sampling = { max_tokens: maxTokens, temperature: 0 };
    const request = { model, prompt, ...sampling, stream: true, user: name || null };
    this.#run(request, headers);
  }

  /** Leaves: the server ends the request and takes its memory back. */
  stop() {
    this.reason = "abort";
    this.#ending.abort();
  }

  leave() {
    this.stop();
    this.element.remove();
  }

  /** Takes what the event log knows of it. */
  show({ model, board }) {
    const span = this.request == null ? null : model?.request(this.request);
    if (!span) return;
    if (!this.#seen) {
      this.#seen = true;
      this.chip.disabled = false;
      this.select(this.request);
    }
    const { hues } = board.theme;
    this.swatch.style.background = hues[span.hueIndex % hues.length];
    const [first] = span.tokenSteps;
    const end = model.measures.end[first - model.firstStep];
    if (this.ttft === null && first && span.arrivedAt !== null && end) {
      this.ttft = (end - span.arrivedAt) / 1000;
    }
    this.#write();
  }

  async #run(request, headers) {
    try {
      const answer = await fetch("/v1/completions", {
        method: "POST",
        headers: { ...headers, "Content-Type": "application/json" },
        body: JSON.stringify(request),
        signal: this.#ending.signal,
      });
      if (!answer.ok) throw new Refused((await answer.json()).error.message);
      this.request = Number(answer.headers.get("x-underglass-request"));
      this.#write();
      await this.#read(answer.body);
      if (!this.reason) throw new Refused("the stream ended before its end");
    } catch (error) {
      if (this.reason !== "abort") {
        this.reason = "error";
        const lost = "the connection to the server was lost";
        this.error = error instanceof Refused ? error.message : lost;
      }
    }
    this.runs = false;
    this.stopButton.hidden = true;
    this.#write();
    this.changed();
  }

  async #read(body) {
    const parser = createParser({ onEvent: ({ data }) => this.#take(data) });
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      parser.feed(value);
      this.#write();
    }
  }

  #take(data) {
    if (data === "[DONE]") return;
    const { error, choices = [] } = JSON.parse(data);
    if (error) throw new Refused(error.message);
    for (const choice of choices) {
      this.text.append(choice.text);
      this.reason ||= choice.finish_reason ?? "";
    }
  }

  #write() {
    const { reason, ttft, request } = this;
    this.element.dataset.state =
      reason || (ttft !== null || this.text.textContent ? "runs" : "waits");
    if (request != null) this.element.dataset.request = request;
    const parts = [];
    if (reason)
      parts.push(
        reason === "error" ? `failed: ${this.error}` : (WORDS[reason] ?? `finished: ${reason}`),
      );
    else if (request == null) parts.push("sending");
    else if (!this.text.textContent) parts.push("waits for its first token");
    else parts.push("runs");
    if (ttft !== null) parts.push(`first token after ${duration(1000 * ttft)}`);
    const words = parts.join(", ");
    if (this.words.textContent !== words) this.words.textContent = words;
  }
}

class Refused extends Error {}
