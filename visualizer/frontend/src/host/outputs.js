/**
 * What a widget does for the output that shows it: sends the kernel a picture for it, and survives that the
 * output is updated with the picture.
 */

import { pictureOf } from "./picture.js";

const CALM = 400; // ms after the first drawing

/** What this page has drawn, by what it shows: [{el, root}]. */
const drawn = new Map();

/**
 * Moves what was drawn for an output into the element that the same output has now; false if there is nothing
 * to move. JupyterLab draws an output anew when it is updated, and takes the old element out without an end.
 */
export function moveInto(el, key) {
  const orphan = drawn.get(key)?.find((one) => !one.el.parentNode && one.el !== el);
  if (!orphan) return false;
  orphan.el = el;
  el.append(orphan.root);
  return true;
}

/** Remembers what is drawn in `el` until `signal` aborts. */
export function remember(el, key, root, signal) {
  const one = { el, root };
  drawn.set(key, [...(drawn.get(key) ?? []), one]);
  signal.addEventListener("abort", () =>
    drawn.set(
      key,
      drawn.get(key).filter((other) => other !== one),
    ),
  );
}

/** Sends the kernel a picture of `root` once it is drawn, if an output still has none. See `pictured.py`. */
export function sendPicture(traits, root, parts, signal) {
  const isDrawn = () => root.dataset.ready === "true";
  const send = async () => {
    if (signal.aborted || !isDrawn() || !traits.get("wants_picture")) return;
    const picture = await pictureOf(root, parts());
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
