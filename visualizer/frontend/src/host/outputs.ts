/**
 * Sends the kernel a static picture for the output that shows a widget, and keeps the widget when the output is
 * updated with the picture.
 */

import type { Shell } from "../board/shell.ts";
import type { WidgetModel } from "./kernel_sync.ts";
import type { Widget } from "./notebook.ts";
import { pictureOf, type Themed } from "./picture.ts";
import { saveWith } from "./saved_state.ts";

const CALM = 400; // ms after the first drawing

/** The widgets drawn in this page, by what they show. */
const drawn: Map<string, { el: HTMLElement; root: HTMLElement }[]> = new Map();

/** The last element of the page that got the keyboard focus. */
let lastFocused: Node | null = null;
document.addEventListener("focusin", ({ target }) => {
  lastFocused = target as Node;
});

/**
 * Moves a drawn widget into the new element of its output; returns false if there is none to move. JupyterLab
 * renders an updated output again and removes the old element without ending the old widget. If the widget had the
 * focus, it gets it back: otherwise its keys would go to the notebook.
 */
export function moveInto(el: HTMLElement, key: string) {
  const orphan = drawn.get(key)?.find((one) => !one.el.parentNode && one.el !== el);
  if (!orphan) return false;
  orphan.el = el;
  el.append(orphan.root);
  requestAnimationFrame(() => {
    const isLost = document.activeElement === document.body;
    if (isLost && orphan.root.contains(lastFocused))
      (lastFocused as HTMLElement).focus({ preventScroll: true });
  });
  return true;
}

/** Registers the widget drawn in `el` until `signal` aborts. */
function remember(el: HTMLElement, key: string, root: HTMLElement, signal: AbortSignal) {
  const one = { el, root };
  drawn.set(key, [...(drawn.get(key) ?? []), one]);
  signal.addEventListener("abort", () =>
    drawn.set(
      key,
      (drawn.get(key) ?? []).filter((other) => other !== one),
    ),
  );
}

/**
 * Sends the kernel a picture of `root` once it is drawn, if an output has none yet. See `picture.py`. `draw` returns
 * the bytes of a PNG; by default, a picture of the page.
 */
function sendPicture(
  traits: WidgetModel,
  root: HTMLElement,
  parts: () => Themed[],
  signal: AbortSignal,
  draw: () => Promise<Uint8Array | null> = () => pictureOf(root, parts()),
) {
  const isDrawn = () => root.dataset.ready === "true";
  const send = async () => {
    if (signal.aborted || !isDrawn() || !traits.get("wants_picture")) return;
    const picture = await draw();
    if (picture && traits.get("wants_picture"))
      traits.send({ picture: true }, undefined, [picture.buffer]);
  };
  const observer = new MutationObserver(() => {
    if (!isDrawn()) return;
    observer.disconnect();
    setTimeout(send, CALM);
  });
  observer.observe(root, { attributes: true, attributeFilter: ["data-ready"] });
  signal.addEventListener("abort", () => observer.disconnect());
}

/** Keeps a drawn widget: with its output, as a picture, and with the notebook. */
export function keep(
  { model: traits, el }: Pick<Widget, "model" | "el">,
  key: string,
  { root, signal }: Pick<Shell, "root" | "signal">,
  parts: () => Themed[],
  draw?: () => Promise<Uint8Array | null>,
) {
  remember(el, key, root, signal);
  sendPicture(traits, root, parts, signal, draw);
  saveWith(traits.widget_manager);
}
