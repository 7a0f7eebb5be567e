/**
 * The predictions of a lesson. What comes after a question is a folded part of the page, which opens when the reader
 * has chosen, or does not want to. A guess is kept in this browser.
 *
 * @typedef {{options: string[], replies: string[][], unanswered: string[]}} Reply  what the reveal says to each
 *   option, and without a guess; a list of paragraphs
 */

import { h } from "../drawing/html.js";

const SKIPPED = -1;

export class Questions {
  /** @param {Document} page @param {Record<string, Reply>} replies */
  constructor(page, replies) {
    this.page = page;
    this.replies = replies;
    /** @type {Map<string, HTMLElement[]>} */
    this.places = new Map();
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

  /** @returns {[string, HTMLFormElement][]} */
  forms() {
    /** @type {NodeListOf<HTMLFormElement>} */
    const forms = this.page.querySelectorAll("form.predict");
    return [...forms].map((form) => [form.dataset.key ?? "", form]);
  }

  /** The part after a question. @param {string} key @returns {HTMLDetailsElement | null} */
  part(key) {
    return this.page.querySelector(`details.part[data-question="${key}"]`);
  }

  /** The number of the chosen option, SKIPPED, or null. @param {string} key */
  guess(key) {
    const stored = read(key);
    const options = this.replies[key]?.options ?? [];
    return stored === null || stored >= options.length ? null : stored;
  }

  /** @param {string} key @param {number} guess */
  answer(key, guess) {
    write(key, guess);
    this.show(key, guess);
    for (const place of this.places.get(key) ?? []) this.reply(place, key);
  }

  /** @param {string} key @param {number} guess */
  show(key, guess) {
    const form = this.forms().find(([one]) => one === key)?.[1];
    const chosen = /** @type {HTMLInputElement | undefined} */ (
      form?.elements.namedItem(`${key}-${guess}`)
    );
    if (chosen) chosen.checked = true;
    const told = form?.querySelector(".told");
    if (told && guess !== SKIPPED)
      told.textContent = `Noted: ${this.replies[key].options[guess]}. Now read on.`;
    const part = this.part(key);
    if (part) part.open = true;
  }

  /** Shows the reply in `place`, now and when the guess changes. @param {HTMLElement} place @param {string} key */
  revealIn(place, key) {
    const places = (this.places.get(key) ?? []).filter((one) => one.isConnected);
    this.places.set(key, [...places, place]);
    this.reply(place, key);
  }

  /** @param {HTMLElement} place @param {string} key */
  reply(place, key) {
    const guess = this.guess(key);
    const reply = this.replies[key];
    if (guess === null || !reply) return place.replaceChildren();
    const lines = guess === SKIPPED ? reply.unanswered : reply.replies[guess];
    place.replaceChildren(...lines.map((line) => h("p", {}, line)));
  }
}

/** @param {string} key */
const nameOf = (key) => `underglass.guess.${key}`;
/** @type {Map<string, number>} */
const memory = new Map(); // for a browser that stores nothing

/** @param {string} key @returns {number | null} */
function read(key) {
  try {
    const stored = localStorage.getItem(nameOf(key));
    if (stored !== null) return Number(stored);
  } catch {
    // Storage is switched off.
  }
  return memory.get(key) ?? null;
}

/** @param {string} key @param {number} guess */
function write(key, guess) {
  memory.set(key, guess);
  try {
    localStorage.setItem(nameOf(key), `${guess}`);
  } catch {
    // Storage is switched off, or full.
  }
}
