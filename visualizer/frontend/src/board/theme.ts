/**
 * The host's theme, light or dark, and a listener for its changes.
 *
 * JupyterLab sets `data-jp-theme-light` on the body, VS Code a class on the body, Colab an attribute on
 * the root element, marimo and most pages a class or `data-theme`. Without any of these, the
 * system's setting applies. The board paints its own background, so the palette's contrast holds everywhere.
 */

import { SANS } from "../drawing/canvas_painter.ts";
import { THEMES, type Theme } from "../drawing/palette.ts";

export type ThemeName = Theme["name"];

const darkQuery = ({ defaultView }: Document) =>
  (defaultView as Window).matchMedia("(prefers-color-scheme: dark)");

/** The current theme of the document: "light" or "dark". */
export function themeName(doc: Document = document): ThemeName {
  const { body, documentElement: html } = doc;
  const jupyter = body.dataset.jpThemeLight;
  if (jupyter) return jupyter === "true" ? "light" : "dark";
  const kind = body.dataset.vscodeThemeKind;
  if (kind) return kind.endsWith("light") ? "light" : "dark";
  for (const element of [html, body]) {
    const named = element.dataset.theme || element.getAttribute("theme");
    if (named === "light" || named === "dark") return named;
    if (element.classList.contains("dark")) return "dark";
    if (element.classList.contains("light")) return "light";
  }
  return darkQuery(doc).matches ? "dark" : "light";
}

/** Gives an element a theme's colours and the board's font; returns the palette. */
export function dress(root: HTMLElement, name: ThemeName) {
  const theme = THEMES[name];
  root.dataset.theme = name;
  root.style.colorScheme = name;
  root.style.setProperty("--sans", SANS);
  for (const [key, value] of Object.entries(theme)) {
    if (value[0] === "#") root.style.setProperty(`--${key}`, `${value}`);
  }
  return theme;
}

/** Calls `changed(name)` whenever the theme changes, until `signal` aborts. */
export function watchTheme(
  changed: (name: ThemeName) => void,
  signal: AbortSignal,
  doc: Document = document,
) {
  let last = themeName(doc);
  const check = () => {
    const name = themeName(doc);
    if (name !== last) changed((last = name));
  };
  const observer = new MutationObserver(check);
  const attributeFilter = [
    "class",
    "theme",
    "data-theme",
    "data-jp-theme-light",
    "data-vscode-theme-kind",
  ];
  for (const element of [doc.documentElement, doc.body]) {
    observer.observe(element, { attributes: true, attributeFilter });
  }
  darkQuery(doc).addEventListener("change", check, { signal });
  signal.addEventListener("abort", () => observer.disconnect());
}
