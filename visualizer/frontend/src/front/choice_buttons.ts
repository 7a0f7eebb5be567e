/** The choices at the end of a scene: a sentence, and a button for each. */

import { h } from "../drawing/html.ts";
import type { Choice } from "./choices.ts";

/** Writes the buttons anew if they have changed; the focus stays. */
export function writeChoices(
  place: HTMLElement,
  choices: Choice[],
  pressed: number | undefined,
  choose: (index: number) => void,
) {
  const key = JSON.stringify([choices, pressed]);
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  const focused = [...place.querySelectorAll("button")].indexOf(
    document.activeElement as HTMLButtonElement,
  );
  const buttons = choices.map(({ title, detail }, index) =>
    h(
      "button",
      { "aria-pressed": `${pressed === index}`, click: () => choose(index) },
      h("kbd", { "aria-hidden": "true" }, `${index + 1}`),
      h("span", h("b", title), ` ${detail}`),
    ),
  );
  if (!choices.length) return place.replaceChildren();
  place.replaceChildren(h("p.consequence", INVITATION), h("div.buttons", ...buttons));
  if (focused >= 0) buttons[focused]?.focus();
}

const INVITATION =
  "What if? Pick one: the same scheduler serves all four again, with times predicted from your run.";
