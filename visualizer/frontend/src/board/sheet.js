/**
 * The root of a part of the page around boards, with the same theme and style.
 *
 * @typedef {object} Sheet
 * @property {HTMLElement} root
 * @property {Theme} theme
 * @property {(name?: ThemeName) => void} setTheme  by default, the host's
 */

/** @import { Theme } from "../drawing/palette.js" */
/** @import { Model } from "../model/model.js" */
/** @import { Span } from "../model/words.js" */
/** @import { ThemeName } from "./theme.js" */
import { h } from "../drawing/html.js";
import boardCss from "./board.css";
import css from "./sheet.css";
import { dress, themeName, watchTheme } from "./theme.js";

/**
 * Builds the root in `host`. `onTheme` is called when the theme changes.
 *
 * @param {Element} host
 * @param {{name: string, label: string, signal: AbortSignal, theme?: ThemeName, onTheme?: () => void}} options
 * @returns {Sheet}
 */
export function buildSheet(host, { name, label, signal, theme: fixed, onTheme = () => {} }) {
  const root = h("div", {
    class: `underglass ${name}`,
    role: "group",
    "aria-label": label,
    "data-lm-suppress-shortcuts": "true",
    "data-ready": "false",
    "data-only": "", // so that the style of a board with one panel does not apply
  });
  root.append(h("style", {}, boardCss + css));
  /** @type {Sheet} */
  const sheet = {
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

/**
 * The kernel's words (strings, and requests as numbers) as spans for `wordNodes`.
 *
 * @param {(string | number)[]} words @param {Pick<Model, "request"> | null} model
 * @returns {Span[]}
 */
export function spansOf(words, model) {
  return words.map((word) =>
    typeof word === "string"
      ? { text: word }
      : { text: model?.request(word)?.name ?? `r${word}`, request: word },
  );
}
