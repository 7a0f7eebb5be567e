// What the Node sessions share; they print what `checks.py` prints.

import { createRequire } from "node:module";
import process from "node:process";

/** Loads a package from the folder that Node was started in, where npm has put it. */
export const load = createRequire(`${process.cwd()}/`);
/** The servers' addresses; see `Servers` in checks.py. */
export const [url, full, auto] = process.argv.slice(2);
export const KEY = "key-of-the-class";
export const PROMPT = "Once upon a time";
export const QUESTION = "What is 17 + 25?";
export const ASKED = { model: "bundled", max_tokens: 24, temperature: 0 };
export const messages = [{ role: "user", content: QUESTION }];

/** The answer to a plain request: POST with a body, GET without. */
export async function call(at, path, body) {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${KEY}` };
  const request = body ? { method: "POST", body: JSON.stringify(body) } : {};
  return (await fetch(at + path, { headers, ...request })).json();
}

export const completed = async () => (await call(url, "/v1/completions", { prompt: PROMPT, ...ASKED })).choices[0].text;
export const answered = async () =>
  (await call(url, "/v1/chat/completions", { messages, ...ASKED })).choices[0].message.content;

export function same(left, right) {
  const [one, other] = [JSON.stringify(left), JSON.stringify(right)];
  if (one !== other) throw new Error(`${one} is not ${other}`);
}

export async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

/** Returns once the engine has ended the last request because its client left. */
export async function untilAborted() {
  for (let tries = 0; tries < 500; tries++) {
    const { active, prefilling, waiting } = await call(url, "/health");
    if (active + prefilling + waiting === 0) {
      const lines = (await (await fetch(`${url}/trace`)).text()).trim().split("\n");
      const ends = lines.map((line) => JSON.parse(line)).filter(({ type }) => type === "request_finished");
      return same(ends.at(-1).reason, "abort");
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error("the engine still works");
}

/** Runs all checks, prints a line of JSON for each, and ends the process. */
export async function main(client, checks) {
  for (const [check, run] of Object.entries(checks)) {
    const error = await run().then(
      () => "",
      (error) => error.stack,
    );
    console.log(JSON.stringify({ client, check, error }));
  }
  process.exit(0);
}
