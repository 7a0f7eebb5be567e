/**
 * Keyboard shortcuts, similar to those of trace viewers. They work while the board has the focus. The
 * shell keeps them from the page around the board, because a notebook would insert a cell at "b".
 */

import { closest, h } from "../drawing/html.ts";
import type { Actions } from "./actions.ts";

export const KEYS: [key: string, what: string][] = [
  ["space", "play or pause; + and - change the speed"],
  [", .   ← →", "one step back or forward; with Shift, ten"],
  ["Home End", "first or last step"],
  ["M", "next moment: a preemption, an eviction, a hit; with Shift, the previous"],
  ["↑ ↓", "select the previous or next request"],
  ["W S", "zoom the timeline in or out"],
  ["A D", "move the timeline left or right"],
  ["F", "show all steps; press it again for the selected request"],
  ["Q", "open or close the queue"],
  ["P", "keep the selected request's lane on top; press it again to put it back"],
  ["X", "switch the timeline between steps and wall time"],
  ["[ ]", "begin or end a range of steps at the cursor"],
  ["Y", "why so slow: where the time of each request went; press it again for the board"],
  ["G", "tell me what happened: a guided tour of the run"],
  ["/", "ask or search: slowest, p99, no free blocks; a request, its text, block 7, step 42"],
  ["N", "next result of the search; with Shift, the previous"],
  ["1 to 6, 0", "show one panel: timeline, blocks, tree, decisions, tokens, experts; 0 shows all"],
  ["V", "show more: lanes, then memory, then everything; with Shift, less"],
  ["U", "decide this step otherwise"],
  ["H", "what would have helped the run; press it again to close the answer"],
  ["E", "open the run in the Perfetto UI"],
  ["T", "show the pictures as tables"],
  ["L", "show a link to this view"],
  ["C", "make a postcard of this step: a picture to share"],
  ["Esc", "close the box; then clear the range, the block, the selection"],
  ["?", "show this list"],
];

const MOUSE: [key: string, what: string][] = [
  ["click", "select a name, lane, block, node or token in all panels"],
  ["drag", "on the time axis, move the cursor; on zoomed lanes, move the timeline"],
  ["Shift + drag", "select a range of steps"],
  ["wheel", "with Ctrl or on the strip, zoom; sideways, move"],
  ["hover", "describe what is under the pointer"],
];

type Bindings = Record<string, (event: KeyboardEvent) => void>;

/** What the keys of every board do. */
export interface Moves {
  toggle: () => void;
  step: (by: number) => void;
  neighbour: (by: number) => void;
  first: () => void;
  last: () => void;
  moment: (by: number) => void;
  zoom: (factor: number) => void;
  pan: (share: number) => void;
  fit: () => void;
  help: () => void;
  escape: () => void;
}

/** The keys that every board has. */
export const movingKeys = (act: Moves): Bindings => ({
  " ": () => act.toggle(),
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
  m: ({ shiftKey }) => act.moment(shiftKey ? -1 : 1),
  w: () => act.zoom(0.7),
  s: () => act.zoom(1 / 0.7),
  a: () => act.pan(-0.15),
  d: () => act.pan(0.15),
  f: () => act.fit(),
  Escape: () => act.escape(),
  "?": () => act.help(),
});

/** The keys of the board of one engine. */
export const boardKeys = (act: Actions): Bindings => ({
  ...movingKeys(act),
  "+": () => act.faster(1),
  "=": () => act.faster(1),
  "-": () => act.faster(-1),
  q: () => act.queue(),
  p: () => act.pin(),
  x: () => act.axis(),
  "[": () => act.rangeFrom(),
  "]": () => act.rangeTo(),
  y: () => act.waterfall(),
  g: () => act.tell(),
  v: ({ shiftKey }) => act.level(shiftKey ? -1 : 1),
  "/": () => act.search(),
  n: ({ shiftKey }) => act.result(shiftKey ? -1 : 1),
  t: () => act.tables(),
  l: () => act.link(),
  c: () => act.postcard(),
  e: () => act.perfetto(),
  u: () => act.seat(),
  h: () => act.helped(),
  ...Object.fromEntries([0, 1, 2, 3, 4, 5, 6].map((digit) => [digit, () => act.only(digit)])),
});

/** Calls the binding of each key pressed in `root`, a single letter in lower case, while `isOn()`. */
export function bindKeys(root: HTMLElement, bindings: Bindings, isOn: () => boolean = () => true) {
  root.addEventListener("keydown", (event) => {
    if (!isOn() || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key !== "Escape" && closest(event, "input, textarea, select")) return;
    const onButton = closest(event, "button, a, summary");
    if (onButton && (event.key === " " || event.key === "Enter")) return;
    const binding = bindings[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!binding) return;
    event.preventDefault();
    binding(event);
  });
}

/** Gives the board the keys that are pressed while nothing on its page has the focus. */
export function takeKeysOfPage(root: HTMLElement, signal: AbortSignal) {
  document.addEventListener(
    "keydown",
    (event) => {
      if (event.target !== document.body) return;
      if (!root.dispatchEvent(new KeyboardEvent("keydown", event))) event.preventDefault();
    },
    { signal },
  );
}

/** The list of keys, shown by "?". */
export function buildHelp(
  close: () => void,
  keys: [key: string, what: string][] = KEYS,
  mouse: [key: string, what: string][] = MOUSE,
) {
  const list = (rows: [key: string, what: string][]) =>
    h("dl", ...rows.flatMap(([key, what]) => [h("dt", key), h("dd.muted", what)]));
  return h(
    "div.box.help",
    { role: "dialog", "aria-label": "Keys and mouse", hidden: true },
    h("strong", "Keys"),
    list(keys),
    h("strong", "Mouse"),
    list(mouse),
    h("button", { click: close }, "Close"),
  );
}
