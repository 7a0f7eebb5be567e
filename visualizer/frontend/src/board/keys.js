/**
 * The keyboard, as in trace viewers. Keys act only while the board has the focus, and none that acts
 * reaches the page around it: a notebook would insert a cell at "b".
 */

import { h } from "../drawing/html.js";

export const KEYS = [
  ["space", "play, pause; + and - change the speed"],
  [", .   ← →", "one step back, forward; with shift, ten"],
  ["Home End", "first, last step"],
  ["↑ ↓", "select the previous, next request"],
  ["W S", "zoom the timeline in, out"],
  ["A D", "move the timeline left, right"],
  ["F", "fit: all steps; again: the selected request"],
  ["X", "the timeline by steps or by wall time"],
  ["[ ]", "sum up the steps from here, to here"],
  ["/", "search: a request, its text, block 7, step 42, preempted"],
  ["1 to 5, 0", "only timeline, blocks, tree, decisions, tokens; all"],
  ["T", "the pictures as tables"],
  ["L", "a link to this view"],
  ["Esc", "close, then forget the range, the block, the selection"],
  ["?", "this list"],
];

const MOUSE = [
  ["click", "a name, lane, block, node or token: see it everywhere"],
  ["drag", "over the time axis: scrub; over zoomed lanes: move"],
  ["shift + drag", "sum up a range of steps"],
  ["wheel", "with Ctrl, or on the strip: zoom; sideways: move"],
  ["hover", "what is under the pointer"],
];

/** Listens on `root`. `act` has one function per row of KEYS. */
export function listenToKeys(root, act, signal) {
  const bindings = {
    " ": () => act.toggle(),
    "+": () => act.faster(1),
    "=": () => act.faster(1),
    "-": () => act.faster(-1),
    ",": () => act.step(-1),
    ".": () => act.step(1),
    "<": () => act.step(-10),
    ">": () => act.step(10),
    ArrowLeft: (event) => act.step(event.shiftKey ? -10 : -1),
    ArrowRight: (event) => act.step(event.shiftKey ? 10 : 1),
    ArrowUp: () => act.neighbour(-1),
    ArrowDown: () => act.neighbour(1),
    Home: () => act.first(),
    End: () => act.last(),
    w: () => act.zoom(0.7),
    s: () => act.zoom(1 / 0.7),
    a: () => act.pan(-0.15),
    d: () => act.pan(0.15),
    f: () => act.fit(),
    x: () => act.axis(),
    "[": () => act.rangeFrom(),
    "]": () => act.rangeTo(),
    "/": () => act.search(),
    t: () => act.tables(),
    l: () => act.link(),
    Escape: () => act.escape(),
    "?": () => act.help(),
  };
  for (let digit = 0; digit <= 5; digit += 1) bindings[digit] = () => act.only(digit);
  root.addEventListener(
    "keydown",
    (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      // The host must not act on any key typed here, whether or not the board knows it. Tab moves on.
      if (event.key === "Tab") return;
      event.stopPropagation();
      if (event.key !== "Escape" && event.target.closest("input, textarea, select")) return;
      const onButton = event.target.closest("button, a, summary");
      if (onButton && (event.key === " " || event.key === "Enter")) return;
      const binding = bindings[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!binding) return;
      event.preventDefault();
      binding(event);
    },
    { signal },
  );
}

/** The list that "?" shows. */
export function buildHelp(close) {
  const done = h("button", { type: "button" }, "Close");
  done.addEventListener("click", close);
  const list = (rows) =>
    h("dl", {}, ...rows.flatMap(([key, what]) => [h("dt", {}, key), h("dd", {}, what)]));
  return h(
    "div",
    { class: "box help", role: "dialog", "aria-label": "Keys and mouse", hidden: true },
    h("strong", {}, "Keys"),
    list(KEYS),
    h("strong", {}, "Mouse"),
    list(MOUSE),
    done,
  );
}
