/**
 * The predictions of a lesson. What comes after a question is a folded part of the page, which opens when the reader
 * has chosen, or does not want to. A guess is kept in this browser.
 */

import { h } from "../drawing/html.ts";

/**
 * what the reveal says to each
 *   option, and without a guess; a list of paragraphs
 */
type Reply = { options: string[]; replies: string[][]; unanswered: string[] };

const SKIPPED = -1;

export class Questions {
  replies: Record<string, Reply>;
  places: Map<string, HTMLElement[]> = new Map();

  constructor(replies: Record<string, Reply>) {
    this.replies = replies;
    for (const [key, form] of this.forms()) {
      const guess = this.guess(key);
      if (guess !== null) this.show(key, guess);
      form.addEventListener("change", () => {
        const chosen = new FormData(form).get("answer");
        if (chosen !== null) this.answer(key, Number(chosen));
      });
      this.part(key)?.addEventListener("toggle", () => {
        if (this.part(key)?.open && this.guess(key) === null) this.answer(key, SKIPPED);
      });
    }
  }

  forms(): [string, HTMLFormElement][] {
    const forms: NodeListOf<HTMLFormElement> = document.querySelectorAll("form.predict");
    return [...forms].map((form) => [form.dataset.key ?? "", form]);
  }

  /** The part after a question. */
  part(key: string): HTMLDetailsElement | null {
    return document.querySelector(`details.part[data-question="${key}"]`);
  }

  /** The number of the chosen option, SKIPPED, or null. */
  guess(key: string) {
    const stored = read(key);
    const options = this.replies[key]?.options ?? [];
    return stored === null || stored >= options.length ? null : stored;
  }

  answer(key: string, guess: number) {
    write(key, guess);
    this.show(key, guess);
    for (const place of this.places.get(key) ?? []) this.reply(place, key);
  }

  show(key: string, guess: number) {
    const form = this.forms().find(([one]) => one === key)?.[1];
    const chosen = form?.elements.namedItem(`${key}-${guess}`) as HTMLInputElement | undefined;
    if (chosen) chosen.checked = true;
    const told = form?.querySelector(".told");
    if (told && guess !== SKIPPED)
      told.textContent = `Noted: ${this.replies[key].options[guess]}. Now read on.`;
    const part = this.part(key);
    if (part) part.open = true;
  }

  /** Shows the reply in `place`, now and when the guess changes. */
  revealIn(place: HTMLElement, key: string) {
    const places = (this.places.get(key) ?? []).filter((one) => one.isConnected);
    this.places.set(key, [...places, place]);
    this.reply(place, key);
  }

  reply(place: HTMLElement, key: string) {
    const guess = this.guess(key);
    const reply = this.replies[key];
    if (guess === null || !reply) return place.replaceChildren();
    const lines = guess === SKIPPED ? reply.unanswered : reply.replies[guess];
    place.replaceChildren(...lines.map((line) => h("p", line)));
  }
}

const nameOf = (key: string) => `underglass.guess.${key}`;
const memory: Map<string, number> = new Map(); // for a browser that stores nothing

function read(key: string): number | null {
  try {
    const stored = localStorage.getItem(nameOf(key));
    if (stored !== null) return Number(stored);
  } catch {
    // Storage is switched off.
  }
  return memory.get(key) ?? null;
}

function write(key: string, guess: number) {
  memory.set(key, guess);
  try {
    localStorage.setItem(nameOf(key), `${guess}`);
  } catch {
    // Storage is switched off, or full.
  }
}
