/** What the scripts of both live pages share: elements by id, the key that the user enters, and requests to the server. */

import { setText } from "../../visualizer/frontend/src/live/live.ts";

const KEY = "underglass key";

/** Posts a command of the teacher's and returns the answer, or null after an error. */
export type Send = (verb: string, body?: object) => Promise<unknown>;

/** An element of the page's markup. */
export const byId = <T extends HTMLElement = HTMLElement>(id: string) =>
  document.getElementById(id) as T;

export function headers(): Record<string, string> {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Shows a line of words, or hides it if there are none. */
export function tell(id: string, words: string) {
  setText(byId(id), words);
  byId(id).hidden = !words;
}

/** Calls `open()` when the user has entered a key, which is kept until the tab is closed. */
export function askForKey(open: () => void) {
  byId("unlock").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, byId<HTMLInputElement>("key").value);
    open();
  });
}

/** Returns a route's answer, or null and says why; `server` is what may not answer. */
export async function ask(route: string, server: string, options?: RequestInit) {
  const error = byId("error");
  error.hidden = true;
  try {
    const all = { ...options, headers: { ...headers(), ...options?.headers } };
    const answer = await fetch(route, all);
    const said = await answer.json();
    if (answer.ok) return said;
    error.textContent = said.error.message;
  } catch {
    error.textContent = `The ${server} does not answer.`;
  }
  error.hidden = false;
  return null;
}

/** The options of a request that posts a body, or nothing. */
export const posting = (body?: object): RequestInit => ({
  method: "POST",
  headers: body && { "Content-Type": "application/json" },
  body: body && JSON.stringify(body),
});
