/** Asks the Python that runs a board's log again, wherever it is. */

import type { Answer, Ask, Fetch, Python } from "../board/seat.ts";
import type { WidgetModel } from "../host/kernel_sync.ts";
import { asBytes, fromBase64 } from "../host/log_bytes.ts";

export function askOf(python: Python): Ask {
  const { replica } = python;
  const ask =
    "ask" in python
      ? python.ask
      : "kernel" in python
        ? askingKernel(python.kernel)
        : askingRoute(python.route, python.headers, python.fetch);
  return replica === undefined
    ? ask
    : (question, ...rest) => ask(Object.assign({ replica }, question), ...rest);
}

/** A route answers with lines of JSON, in which logs are base64. */
const askingRoute =
  (
    route: string,
    headers: () => Record<string, string> = () => ({}),
    fetchFrom: Fetch = (url, init) => fetch(url, init),
  ): Ask =>
  async (question, signal, onAnswer) => {
    const body = JSON.stringify(question);
    const sent = { "Content-Type": "application/json", ...headers() };
    const answer = await fetchFrom(route, { method: "POST", body, headers: sent, signal });
    if (!answer.ok || !answer.body) return failed(await answer.text());
    let rest = "";
    const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value = "", done } = await pieces.read();
      const lines = (rest + value).split("\n");
      rest = lines.pop() as string;
      for (const line of lines) {
        const said = decoded(JSON.parse(line));
        if (said.done) return said;
        onAnswer?.(said);
      }
      if (done) return failed(rest);
    }
  };

/** A server's message: that of an API error, or the text itself. */
function failed(text: string): Answer {
  let error = text || "the server has ended the answer";
  try {
    error = JSON.parse(text).error.message;
  } catch {
    // not an API's error
  }
  return { done: true, error };
}

const decoded = (answer: Answer & { a?: any; b?: any }): Answer =>
  answer.a ? { ...answer, a: fromBase64(answer.a), b: fromBase64(answer.b) } : answer;

/** A kernel answers with messages, and logs are their buffers. */
function askingKernel(kernel: WidgetModel): Ask {
  let count = 0;
  return (question, signal, onAnswer) =>
    new Promise((resolve, reject) => {
      count += 1;
      const id = `${count} ${Math.random()}`; // several pages ask one kernel
      const take = (message: Record<string, any>, buffers: DataView[] = []) => {
        if (message.seat !== id) return;
        const [a, b] = buffers.map(asBytes);
        const answer: Answer = { ...message.answer, ...(a && { a, b }) };
        if (!answer.done) return onAnswer?.(answer);
        kernel.off("msg:custom", take);
        resolve(answer);
      };
      kernel.on("msg:custom", take);
      signal.addEventListener("abort", () => {
        kernel.off("msg:custom", take);
        kernel.send({ ask: "stop", id });
        reject(signal.reason);
      });
      kernel.send({ ask: "seat", id, question });
    });
}
