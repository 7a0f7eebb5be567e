/** A page part that is no board itself, but looks like one: its theme, its style, its root. */

import { SANS } from "../drawing/canvas_painter.js";
import { h } from "../drawing/html.js";
import { THEMES } from "../drawing/palette.js";
import boardCss from "./board.css";
import css from "./sheet.css";
import { themeName, watchTheme } from "./theme.js";

/** Builds the root in `host`. `sheet.theme` is the palette; `onTheme` hears of another one. */
export function buildSheet(host, { name, label, signal, theme: fixed, onTheme = () => {} }) {
  const root = h("div", {
    class: `underglass ${name}`,
    role: "group",
    "aria-label": label,
    "data-lm-suppress-shortcuts": "true",
    "data-ready": "false",
    "data-only": "", // the style of a board with one panel is not for what is around it
  });
  root.append(h("style", {}, boardCss + css));
  const sheet = { root, theme: null };
  const dress = (chosen = fixed ?? themeName()) => {
    sheet.theme = THEMES[chosen];
    root.dataset.theme = chosen;
    root.style.colorScheme = chosen;
    root.style.setProperty("--sans", SANS);
    for (const [key, value] of Object.entries(sheet.theme)) {
      if (typeof value === "string") root.style.setProperty(`--${key}`, value);
    }
  };
  dress();
  /** Draws the sheet in a theme; left out, in the host's. */
  sheet.setTheme = (name) => {
    dress(name);
    onTheme();
  };
  watchTheme(() => sheet.setTheme(), signal);
  // What is typed here is no command of a notebook around it.
  root.addEventListener("keydown", (event) => event.key !== "Tab" && event.stopPropagation(), {
    signal,
  });
  const observer = new ResizeObserver(() => {
    const unit = root.clientWidth >= 1800 ? 1.5 : 1; // as large as a board of that width
    root.dataset.layout = root.clientWidth < 720 ? "narrow" : "wide";
    root.style.setProperty("--px", `${unit}px`);
  });
  observer.observe(root);
  signal.addEventListener("abort", () => {
    observer.disconnect();
    root.remove();
  });
  host.append(root);
  return sheet;
}

/** Words of the kernel (texts, and requests by number) as the spans that `wordNodes` draws. */
export function spansOf(words, model) {
  return words.map((word) =>
    typeof word === "string"
      ? { text: word }
      : { text: model?.request(word)?.name ?? `r${word}`, request: word },
  );
}
