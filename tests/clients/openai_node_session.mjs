// OpenAI's Node SDK. Run by Node in the folder where npm put the package; prints what `checks.py` prints.

import {
  answered,
  ASKED,
  auto,
  call,
  collect,
  completed,
  full,
  KEY,
  load,
  main,
  messages,
  PROMPT,
  QUESTION,
  same,
  untilAborted,
  url,
} from "./checks.mjs";

const { default: OpenAI } = load("openai");
const { zodResponseFormat } = load("openai/helpers/zod");
const { z } = load("zod");

const animal = z.object({ animal: z.enum(["owl", "cat", "ant"]), legs: z.int().min(0).max(9) });
const described = { ...ASKED, messages: [{ role: "user", content: "Describe an animal." }], max_tokens: 60 };
const tools = [{ type: "function", function: { name: "note", parameters: z.toJSONSchema(animal) } }];

const client = (at, options = {}) => new OpenAI({ baseURL: `${at}/v1`, apiKey: KEY, maxRetries: 0, ...options });
const api = client(url);

async function refused(promise, kind) {
  const error = await promise.then(
    () => null,
    (error) => error,
  );
  if (!(error instanceof kind)) throw new Error(`expected ${kind.name}, got ${error}`);
  return error;
}

const checks = {
  async models() {
    const models = await collect(api.models.list());
    same(models.map(({ id, object }) => [id, object]), [["bundled", "model"]]);
    same((await api.models.retrieve("bundled")).created, models[0].created);
  },
  async completion() {
    const { choices } = await api.completions.create({ prompt: PROMPT, ...ASKED });
    same([choices[0].text, choices[0].finish_reason], [await completed(), "length"]);
  },
  async "completion, streamed"() {
    const chunks = await collect(await api.completions.create({ prompt: PROMPT, stream: true, ...ASKED }));
    same(chunks.map(({ choices }) => choices[0].text).join(""), await completed());
    same(chunks.at(-1).choices[0].finish_reason, "length");
  },
  async chat() {
    const { choices } = await api.chat.completions.create({ messages, ...ASKED });
    same([choices[0].message.content, choices[0].finish_reason], [await answered(), "stop"]);
  },
  async "chat, streamed"() {
    const stream = api.chat.completions.stream({ messages, ...ASKED });
    let text = "";
    stream.on("content", (delta) => (text += delta));
    same((await stream.finalChatCompletion()).choices[0].message.content, await answered());
    same(text, await answered());
  },
  async usage() {
    const { usage } = await api.completions.create({ prompt: PROMPT, ...ASKED });
    const asked = { prompt: PROMPT, stream: true, stream_options: { include_usage: true }, ...ASKED };
    const last = (await collect(await api.completions.create(asked))).at(-1);
    same([last.choices, last.usage.total_tokens], [[], usage.total_tokens]);
    same(usage.completion_tokens, 24);
  },
  async stop() {
    const whole = await completed();
    const word = whole.trim().split(" ")[5];
    const { choices } = await api.completions.create({ prompt: PROMPT, stop: [word], ...ASKED });
    same([choices[0].text, choices[0].finish_reason], [whole.slice(0, whole.indexOf(word)), "stop"]);
  },
  async n() {
    const asked = { messages: [{ role: "user", content: "Tell me a story" }], ...ASKED, temperature: 1, seed: 7, n: 3 };
    const { choices } = await api.chat.completions.create(asked);
    same(choices.map(({ index }) => index), [0, 1, 2]);
    same(new Set(choices.map(({ message }) => message.content)).size, 3);
  },
  async logprobs() {
    const { choices } = await api.completions.create({ prompt: PROMPT, logprobs: 3, ...ASKED });
    same(choices[0].logprobs.tokens.join(""), choices[0].text);
    const asked = { messages, logprobs: true, top_logprobs: 2, ...ASKED };
    const { content } = (await api.chat.completions.create(asked)).choices[0].logprobs;
    // The token that ends the answer is no text, but it has a probability.
    // They have the calculator's tokens, too, which the text leaves out.
    same(content.slice(0, -1).map(({ token }) => token).join("").endsWith(await answered()), true);
  },
  async seed() {
    const text = async (seed) =>
      (await api.completions.create({ prompt: PROMPT, ...ASKED, temperature: 1, seed })).choices[0].text;
    same(await text(1), await text(1));
    if (new Set(await Promise.all([1, 2, 3, 4].map(text))).size < 2) throw new Error("no seed changes anything");
  },
  async parts() {
    const content = ["What is ", "17 + 25?"].map((text) => ({ type: "text", text }));
    const { choices } = await api.chat.completions.create({ messages: [{ role: "user", content }], ...ASKED });
    same(choices[0].message.content, await answered());
  },
  async schema() {
    const response_format = zodResponseFormat(animal, "animal");
    const { choices } = await api.chat.completions.parse({ ...described, response_format });
    animal.parse(choices[0].message.parsed);
  },
  async "a tool, required"() {
    const asked = { ...described, tools, tool_choice: "required", parallel_tool_calls: false };
    const { choices } = await api.chat.completions.create(asked);
    same(choices[0].finish_reason, "tool_calls");
    animal.parse(JSON.parse(choices[0].message.tool_calls[0].function.arguments));
  },
  async "a tool, streamed"() {
    const asked = { ...described, tools, tool_choice: { type: "function", function: { name: "note" } } };
    const { choices } = await api.chat.completions.stream(asked).finalChatCompletion();
    same(choices[0].message.tool_calls[0].function.name, "note");
    animal.parse(JSON.parse(choices[0].message.tool_calls[0].function.arguments));
  },
  async responses() {
    const asked = { model: "bundled", input: QUESTION, temperature: 0, max_output_tokens: 24 };
    const { output_text, status } = await api.responses.create(asked);
    same([output_text, status], [await answered(), "completed"]);
    const events = await collect(await api.responses.create({ ...asked, stream: true }));
    same(events.at(-1).type, "response.completed");
  },
  async "a wrong field"() {
    const asked = { prompt: PROMPT, ...ASKED, temperature: -1 };
    const error = await refused(api.completions.create(asked), OpenAI.BadRequestError);
    same([error.param, error.type], ["temperature", "invalid_request_error"]);
  },
  async "404"() {
    const asked = { prompt: PROMPT, ...ASKED, model: "gpt-4" };
    const error = await refused(client(auto).completions.create(asked), OpenAI.NotFoundError);
    same([error.code, error.param], ["model_not_found", "model"]);
  },
  async "401"() {
    const error = await refused(client(auto, { apiKey: "another" }).models.list(), OpenAI.AuthenticationError);
    same(error.code, "invalid_api_key");
  },
  async "429, then retried"() {
    await call(full, "/engine/pause", {});
    const first = await client(full).completions.create({ prompt: PROMPT, stream: true, ...ASKED });
    const asked = { prompt: PROMPT, ...ASKED };
    const error = await refused(client(full).completions.create(asked), OpenAI.RateLimitError);
    same(error.code, "queue_full");
    const patient = client(full, { maxRetries: 8 }).completions.create(asked);
    setTimeout(() => call(full, "/engine/resume", {}), 300);
    const text = (await collect(first)).map(({ choices }) => choices[0].text).join("");
    same((await patient).choices[0].text, text);
  },
  async parallel() {
    const asked = { prompt: PROMPT, ...ASKED };
    const answers = await Promise.all(Array.from({ length: 24 }, () => api.completions.create(asked)));
    same([...new Set(answers.map(({ choices }) => choices[0].text))], [await completed()]);
  },
  async timeout() {
    await call(url, "/engine/pause", {});
    try {
      const asked = { prompt: PROMPT, ...ASKED };
      await refused(client(url, { timeout: 300 }).completions.create(asked), OpenAI.APIConnectionTimeoutError);
    } finally {
      await call(url, "/engine/resume", {});
    }
    await untilAborted();
  },
  async cancel() {
    const asked = { prompt: PROMPT, ...ASKED, max_tokens: 1000, ignore_eos: true };
    const stream = await api.completions.create({ ...asked, stream: true });
    for await (const _ of stream) break; // leaving the loop closes the stream
    await untilAborted();
    const leaving = new AbortController();
    setTimeout(() => leaving.abort(), 100);
    await refused(api.completions.create(asked, { signal: leaving.signal }), OpenAI.APIUserAbortError);
    await untilAborted();
  },
};

await main("openai (Node)", checks);
