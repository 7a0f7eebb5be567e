/** The root of a part of the page around boards, with the same theme and style. */

import { h } from "../drawing/html.ts";
import type { Theme } from "../drawing/palette.ts";
import type { Model } from "../model/model.ts";
import type { Span } from "../model/words.ts";
import boardCss from "./board.css";
import css from "./sheet.css";
import { dress, type ThemeName, themeName, watchTheme } from "./theme.ts";

export interface Sheet {
  root: HTMLElement;
  theme: Theme;
  setTheme: (name?: ThemeName) => void; // by default, the host's
}

/** Builds the root in `host`. `onTheme` is called when the theme changes. */
export function buildSheet(
  host: Element,
  {
    name,
    label,
    signal,
    theme: fixed,
    onTheme = () => {},
  }: { name: string; label: string; signal: AbortSignal; theme?: ThemeName; onTheme?: () => void },
): Sheet {
  const root = h("div", {
    class: `underglass ${name}`,
    role: "group",
    "aria-label": label,
    "data-lm-suppress-shortcuts": "true",
    "data-ready": "false",
    "data-only": "",
  });
  root.append(h("style", boardCss + css));
  const sheet: Sheet = {
    root,
    theme: dress(root, fixed ?? themeName()),
    setTheme(name = fixed ?? themeName()) {
      sheet.theme = dress(root, name);
      onTheme();
    },
  };
  watchTheme(() => sheet.setTheme(), signal);
  // Keys typed here must not trigger shortcuts of a surrounding notebook.
  root.addEventListener("keydown", (event) => event.key !== "Tab" && event.stopPropagation(), {
    signal,
  });
  const observer = new ResizeObserver(() => {
    root.dataset.layout = root.clientWidth < 720 ? "narrow" : "wide";
  });
  root.style.setProperty("--px", "1px");
  observer.observe(root);
  signal.addEventListener("abort", () => {
    observer.disconnect();
    root.remove();
  });
  host.append(root);
  return sheet;
}

/** The kernel's words (strings, and requests as numbers) as spans for `wordNodes`. */
export function spansOf(words: (string | number)[], model: Pick<Model, "request"> | null): Span[] {
  return words.map((word) =>
    typeof word === "string"
      ? { text: word }
      : { text: model?.request(word)?.name ?? `r${word}`, request: word },
  );
}
