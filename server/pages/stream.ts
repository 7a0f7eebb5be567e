/**
 * One prompt that was sent from this page: its output as it is generated, and its state in one line.
 *
 * The output comes over the request's own connection, in OpenAI's format. The time to first token and the
 * colour come from the event log, so that they agree with the board. Everything is inserted as text:
 * a prompt is never markup.
 */

import { h } from "../../visualizer/frontend/src/drawing/html.ts";
import { paintSwatch } from "../../visualizer/frontend/src/drawing/marks.ts";
import type { Theme } from "../../visualizer/frontend/src/drawing/palette.ts";
import { type ServerStatus, setText } from "../../visualizer/frontend/src/live/live.ts";
import { createParser } from "../../visualizer/frontend/src/live/live_feed.ts";
import { duration } from "../../visualizer/frontend/src/model/duration.ts";
import type { Model } from "../../visualizer/frontend/src/model/index.ts";

/** What a prompt reads of a live board. */
export interface Live {
  model?: Model | null;
  run: string;
  status: ServerStatus;
  board: { theme: Theme; store: { step: number } };
}

interface Prompt {
  prompt: string;
  isChat: boolean;
  name: string;
  maxTokens: number;
  model: string | null;
  headers: Record<string, string>;
}

const WORDS: Record<string, string> = {
  stop: "finished: end of text",
  length: "finished: max tokens reached",
  abort: "stopped",
};

export class Stream {
  runs = true;
  request: number | null = null; // id in the event log
  replica: string | null = null; // that of a gateway which answers
  isAgain = false; // whether a restarted engine has the prompt again
  #log = ""; // the run whose log has the request
  reason = "";
  ttft: number | null = null; // ms
  #ending = new AbortController();
  #seen = false;
  swatch = h("i");
  chip = h("button.name", { disabled: true, click: () => this.select() }, this.swatch);
  words = h("span.words.muted", { role: "status" }, "sending");
  stopButton = h("button.stop", { click: () => this.stop() }, "Stop");
  text = h("span.text");
  element: HTMLElement;
  isHeld = false;
  isShown = false;
  error = "";
  label: string;
  changed: () => void;
  select: () => void;

  /** Send the prompt. `changed()` is called when it ends, `select(id, stream)` shows it. */
  constructor(
    { prompt, isChat, name, maxTokens, model, headers }: Prompt,
    changed: () => void,
    select: (request: number, stream: Stream) => void,
  ) {
    this.changed = changed;
    this.label = name;
    this.select = () => this.request !== null && select(this.request, this);
    this.chip.append(name || "You");
    this.element = h(
      "li.stream",
      h("div.head", this.chip, this.words, this.stopButton),
      h("p.body", h("span.prompt.muted", prompt), this.text),
    );
    // `user` is the label in the log; a header like X-Client cannot carry every alphabet.
    const sampling = { max_tokens: maxTokens, temperature: 0 };
    const asked = isChat ? { messages: [{ role: "user", content: prompt }] } : { prompt };
    const request = { model, ...asked, ...sampling, stream: true, user: name || null };
    this.#run(isChat ? "/v1/chat/completions" : "/v1/completions", request, headers);
  }

  /** Close the connection: the server aborts the request and frees its memory. */
  stop() {
    this.reason = "abort";
    this.#ending.abort();
  }

  remove() {
    this.stop();
    this.element.remove();
  }

  /** Whether the request is in the log that a board shows; a restarted engine may have it again. */
  #isIn({ model, run, status }: Live) {
    if (this.request == null) return false;
    this.#log ||= run;
    const { previous } = status;
    const isNext = status.run === run && previous?.run === this.#log && previous.prompts !== "none";
    if (isNext && model?.request(this.request)?.label === this.label) {
      this.#log = run;
      this.isAgain = true;
      this.ttft = null;
    }
    return this.#log === run;
  }

  /** Update from the event log. */
  show(live: Live) {
    const { model, board, status } = live;
    this.isHeld = this.request == null && !!status.holding;
    this.isShown = this.#isIn(live);
    const span = this.isShown ? model?.request(this.request) : null;
    this.chip.disabled = !span;
    if (!span || !model) {
      this.#write();
      return;
    }
    if (!this.#seen) {
      this.#seen = true;
      this.select();
    }
    paintSwatch(this.swatch, board.theme, model.laneOf(span.id, board.store.step));
    const [first] = span.tokenSteps;
    const end = model.measures.end.at(first - model.firstStep);
    if (this.ttft === null && first && span.arrivedAt !== null && end) {
      this.ttft = (end - span.arrivedAt) / 1000;
    }
    if (this.isAgain) {
      this.reason = span.finished?.reason ?? "";
      this.error = span.finished?.message ?? "";
    }
    if (this.isAgain && status.trace_text === "on")
      this.text.textContent = span.texts.slice(span.promptLength).join("");
    this.#write();
  }

  async #run(route: string, request: object, headers: Record<string, string>) {
    try {
      const answer = await fetch(route, {
        method: "POST",
        headers: { ...headers, "Content-Type": "application/json" },
        body: JSON.stringify(request),
        signal: this.#ending.signal,
      });
      if (!answer.ok) throw new RequestError((await answer.json()).error.message);
      this.request = Number(answer.headers.get("x-underglass-request"));
      this.replica = answer.headers.get("x-underglass-replica");
      this.#write();
      if (answer.body) await this.#read(answer.body);
      if (!this.reason)
        throw new RequestError("the connection closed before the output was complete");
    } catch (error) {
      if (this.reason !== "abort" && !this.isAgain) {
        this.reason = "error";
        const lost = "the connection to the server was lost";
        this.error = error instanceof RequestError ? error.message : lost;
      }
    }
    this.runs = false;
    this.stopButton.hidden = true;
    this.#write();
    this.changed();
  }

  async #read(body: ReadableStream<Uint8Array<ArrayBuffer>>) {
    const parser = createParser({ onEvent: ({ data }) => this.#take(data) });
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      parser.feed(value);
      this.#write();
    }
  }

  #take(data: string) {
    if (data === "[DONE]") return;
    const { error, choices = [] } = JSON.parse(data);
    if (error) throw new RequestError(error.message);
    for (const choice of choices) {
      this.text.append(choice.text ?? choice.delta.content ?? "");
      this.reason ||= choice.finish_reason ?? "";
    }
  }

  #write() {
    const { reason, ttft, request } = this;
    this.element.dataset.state =
      reason || (ttft !== null || this.text.textContent ? "runs" : "waits");
    if (request != null) this.element.dataset.request = String(request);
    const parts = [this.#state()];
    if (ttft !== null) parts.push(`first token after ${duration(1000 * ttft)}`);
    setText(this.words, parts.join(", "));
  }

  #state() {
    const { reason, request } = this;
    if (reason === "error") return `failed: ${this.error}`;
    if (reason) return WORDS[reason] ?? `finished: ${reason}`;
    if (this.isAgain) return "runs again in the restarted engine";
    if (request == null) return this.isHeld ? "held until all are released" : "sending";
    return this.text.textContent ? "running" : "waiting for its first token";
  }
}

class RequestError extends Error {}
