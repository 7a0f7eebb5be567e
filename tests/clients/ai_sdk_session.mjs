// Vercel's AI SDK with its provider for servers like OpenAI's. Run like `openai_node_session.mjs`.

import {
  answered,
  auto,
  call,
  collect,
  full,
  KEY,
  load,
  main,
  PROMPT,
  QUESTION,
  same,
  untilAborted,
  url,
} from "./checks.mjs";

const { APICallError, generateText, Output, streamText, tool } = load("ai");
const { createOpenAICompatible } = load("@ai-sdk/openai-compatible");
const { z } = load("zod");

const provider = (at, options = {}) =>
  createOpenAICompatible({
    name: "underglass",
    baseURL: `${at}/v1`,
    apiKey: KEY,
    includeUsage: true,
    supportsStructuredOutputs: true,
    ...options,
  });
const model = provider(url)("bundled");
const asked = { model, prompt: QUESTION, maxOutputTokens: 24, temperature: 0, maxRetries: 0 };

const animal = z.object({ animal: z.enum(["owl", "cat", "ant"]), legs: z.int().min(0).max(9) });
const describe = { ...asked, prompt: "Describe an animal.", maxOutputTokens: 60 };
const tools = { note: tool({ description: "Note an animal.", inputSchema: animal }) };

async function rejected(promise, status) {
  const error = await promise.then(
    () => null,
    (error) => error,
  );
  if (!APICallError.isInstance(error)) throw new Error(`expected an APICallError, got ${error}`);
  same(error.statusCode, status);
  return error;
}

const checks = {
  async completion() {
    const { text, finishReason } = await generateText({
      ...asked,
      model: provider(url).completionModel("bundled"),
      prompt: PROMPT,
    });
    // This provider writes the prompt as a dialogue, so only the shape of the answer is known.
    same([typeof text, ["stop", "length"].includes(finishReason)], ["string", true]);
  },
  async chat() {
    const { text, finishReason } = await generateText(asked);
    same([text, finishReason], [await answered(), "stop"]);
  },
  async "chat, streamed"() {
    const { textStream, finishReason } = streamText(asked);
    same((await collect(textStream)).join(""), await answered());
    same(await finishReason, "stop");
  },
  async usage() {
    const whole = (await generateText(asked)).usage;
    const result = streamText(asked);
    await collect(result.textStream);
    same((await result.usage).totalTokens, whole.totalTokens);
    same(whole.inputTokens + whole.outputTokens, whole.totalTokens);
  },
  async stop() {
    const story = { ...asked, prompt: "Tell me a story", maxOutputTokens: 40 };
    const whole = (await generateText(story)).text;
    const word = whole.split(" ")[3];
    same((await generateText({ ...story, stopSequences: [word] })).text, whole.slice(0, whole.indexOf(word)));
  },
  async seed() {
    const text = async (seed) => (await generateText({ ...asked, prompt: "Tell me a story", temperature: 1, seed })).text;
    same(await text(1), await text(1));
    if (new Set(await Promise.all([1, 2, 3, 4].map(text))).size < 2) throw new Error("the seed changes nothing");
  },
  async schema() {
    const { output } = await generateText({ ...describe, output: Output.object({ schema: animal }) });
    animal.parse(output);
  },
  async "schema, streamed"() {
    const result = streamText({ ...describe, output: Output.object({ schema: animal }) });
    const partial = await collect(result.partialOutputStream);
    animal.parse(await result.output);
    if (partial.length < 2) throw new Error("the object came in one piece");
  },
  async choice() {
    const options = ["owl", "cat", "ant"];
    const { output } = await generateText({ ...describe, output: Output.choice({ options }) });
    same(options.includes(output), true);
  },
  async "a tool, required"() {
    const { toolCalls, finishReason } = await generateText({ ...describe, tools, toolChoice: "required" });
    same([toolCalls.length >= 1, toolCalls[0].toolName, finishReason], [true, "note", "tool-calls"]);
    animal.parse(toolCalls[0].input);
  },
  async "a tool, named"() {
    const toolChoice = { type: "tool", toolName: "note" };
    const { toolCalls } = await generateText({ ...describe, tools, toolChoice });
    same(toolCalls.map(({ toolName }) => toolName), ["note"]);
    animal.parse(toolCalls[0].input);
  },
  async "a tool, streamed"() {
    const result = streamText({ ...describe, tools, toolChoice: { type: "tool", toolName: "note" } });
    const parts = await collect(result.stream);
    const kinds = parts.map(({ type }) => type);
    for (const kind of ["tool-input-start", "tool-input-delta", "tool-call"]) same([kind, kinds.includes(kind)], [kind, true]);
    animal.parse(parts.find(({ type }) => type === "tool-call").input);
  },
  async "a tool's result"() {
    const echo = { note: tool({ description: "Note.", inputSchema: animal, execute: async () => "noted" }) };
    const first = await generateText({ ...describe, tools: echo, toolChoice: "required" });
    const messages = [{ role: "user", content: "Describe an animal." }, ...first.responseMessages];
    const { prompt: _, ...rest } = describe;
    const { text } = await generateText({ ...rest, messages, tools, toolChoice: "none" });
    same(typeof text, "string");
  },
  async "a wrong field"() {
    const error = await rejected(generateText({ ...asked, topP: 2 }), 400);
    same(JSON.parse(error.responseBody).error.param, "top_p");
  },
  async "404"() {
    await rejected(generateText({ ...asked, model: provider(auto)("gpt-4") }), 404);
  },
  async "401"() {
    await rejected(generateText({ ...asked, model: provider(auto, { apiKey: "another" })("bundled") }), 401);
  },
  async "429, then retried"() {
    await call(full, "/engine/pause", {});
    const crowded = { ...asked, model: provider(full)("bundled") };
    const first = generateText(crowded);
    while (!(await call(full, "/health")).waiting);
    await rejected(generateText(crowded), 429);
    const patient = generateText({ ...crowded, maxRetries: 4 });
    setTimeout(() => call(full, "/engine/resume", {}), 300);
    same((await patient).text, (await first).text);
  },
  async parallel() {
    const answers = await Promise.all(Array.from({ length: 24 }, () => generateText(asked)));
    same([...new Set(answers.map(({ text }) => text))], [await answered()]);
  },
  async cancel() {
    await call(url, "/engine/pause", {});
    try {
      const leaving = new AbortController();
      const left = generateText({ ...asked, abortSignal: leaving.signal });
      while (!(await call(url, "/health")).waiting);
      leaving.abort();
      same((await left.catch((error) => error)).name, "AbortError");
    } finally {
      await call(url, "/engine/resume", {});
    }
    await untilAborted();
  },
};

await main("AI SDK", checks);
