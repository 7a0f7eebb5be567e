import { LogLines } from "../../src/model/lines.ts";

/** The events of a whole log; an incomplete last line is dropped, any other invalid line is a `LogError`. */
export function parseLog(/** @type {string} */ text) {
  const events = [];
  const lines = new LogLines();
  lines.push(new TextEncoder().encode(text), (event) => events.push(event));
  lines.end((event) => events.push(event));
  return { events };
}
