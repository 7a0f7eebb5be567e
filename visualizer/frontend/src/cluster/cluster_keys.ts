/** The keys of a cluster's board, the list of them, and buttons for those that have no other control. */

import { bindKeys, buildHelp } from "../board/keys.ts";
import { h } from "../drawing/html.ts";
import type { ClusterBoard } from "./cluster_board.ts";
import { clusterMoments } from "./cluster_moments.ts";

const TICK = 100; // ms between two moments while it plays

const KEYS: [key: string, what: string][] = [
  ["space", "play or pause"],
  [", .   ← →", "the step or decision before or after the cursor; with Shift, ten"],
  ["↑ ↓", "select the previous or next decision"],
  [
    "M",
    "next decision worth a look: a wrong prediction, a lost request, a move; with Shift, the previous",
  ],
  ["Home End", "first or last moment"],
  ["W S", "zoom in or out"],
  ["A D", "move the time axis left or right"],
  ["F", "show the whole run; press it again for the selected request"],
  ["O", "open the board of the selected request's replica"],
  ["Esc", "close the box or the replica; then clear the selection"],
  ["?", "show this list"],
];
const MOUSE: [key: string, what: string][] = [
  ["click", "select a decision, a lane, a block or a node; elsewhere, move the cursor"],
  ["drag", "move the cursor"],
  ["wheel", "with Ctrl, zoom; sideways, move"],
  ["hover", "describe what is under the pointer"],
];

export function bindClusterKeys(board: ClusterBoard) {
  const help = buildHelp(() => toggle(), KEYS, MOUSE);
  const toggle = () => {
    help.hidden = !help.hidden;
    if (help.hidden) board.root.focus({ preventScroll: true });
    else help.querySelector("button")?.focus({ preventScroll: true });
  };
  const act = actionsOf(board);
  const dismiss = () => {
    if (!help.hidden) toggle();
    else if (board.showsOne) board.closeReplica();
    else board.selectRoute(null);
  };
  const many = ({ shiftKey }: KeyboardEvent) => (shiftKey ? 10 : 1);
  const keys: Record<string, (event: KeyboardEvent) => void> = {
    " ": act.play,
    ",": () => act.move(-1),
    ".": () => act.move(1),
    "<": () => act.move(-10),
    ">": () => act.move(10),
    ArrowLeft: (event) => act.move(-many(event)),
    ArrowRight: (event) => act.move(many(event)),
    ArrowUp: () => act.neighbour(-1),
    ArrowDown: () => act.neighbour(1),
    Home: () => board.goTo(board.axis.from),
    End: () => board.goTo(board.axis.to),
    m: ({ shiftKey }) => act.moment(shiftKey ? -1 : 1),
    w: () => board.zoom(0.7),
    s: () => board.zoom(1 / 0.7),
    a: () => board.pan(-0.15),
    d: () => board.pan(0.15),
    f: () => board.fit(),
    o: act.open,
    Escape: dismiss,
    "?": toggle,
  };
  bindKeys(board.root, keys, board.signal, () => !board.showsOne);
  const button = (name: string, words: string, key: string, does: () => void) => {
    const element = h("button", { "data-act": name }, words, " ", h("kbd", key));
    element.addEventListener("click", does);
    return element;
  };
  const play = button("play", "Play", "space", act.play);
  const foot = h(
    "div.foot",
    { role: "toolbar", "aria-label": "Tools" },
    play,
    button("previous", "Previous decision", "↑", () => act.neighbour(-1)),
    button("next", "Next decision", "↓", () => act.neighbour(1)),
    button("moment", "Next worth a look", "M", () => act.moment(1)),
    button("fit", "Whole run or request", "F", () => board.fit()),
    button("open", "Board of the replica", "O", act.open),
    button("help", "Keys and mouse", "?", toggle),
  );
  return {
    help,
    foot,
    write() {
      const words = board.state.playing ? "Pause" : "Play";
      const [text] = play.childNodes;
      if (text.nodeValue !== words) text.nodeValue = words;
      board.root.dataset.playing = `${board.state.playing}`;
    },
  };
}

function actionsOf(board: ClusterBoard) {
  const move = (by: number) => {
    let { at } = board.state;
    for (let i = 0; i < Math.abs(by); i += 1) at = neighbourTime(board, at, Math.sign(by)) ?? at;
    board.goTo(at);
    return at;
  };
  let timer: ReturnType<typeof setInterval> | undefined;
  const stop = () => {
    clearInterval(timer);
    timer = undefined;
    board.set({ playing: false });
  };
  board.signal.addEventListener("abort", () => clearInterval(timer));
  return {
    move,
    play() {
      if (timer) return stop();
      if (board.state.at >= board.axis.to) board.goTo(board.axis.from);
      board.set({ playing: true });
      timer = setInterval(() => {
        const before = board.state.at;
        if (move(1) <= before) stop();
      }, TICK);
    },
    neighbour(by: number) {
      const { routes } = board.model;
      const { route } = board.state;
      const next = route === null ? (by > 0 ? 0 : routes.length - 1) : route + by;
      if (routes[next]) board.selectRoute(routes[next], true);
    },
    moment(by: number) {
      const here = board.state.route ?? (by > 0 ? -1 : Infinity);
      const all = clusterMoments(board.model);
      const next =
        by > 0 ? all.find(({ index }) => index > here) : all.findLast(({ index }) => index < here);
      if (next) board.selectRoute(next, true);
    },
    open() {
      const replica = board.model.replica(board.route?.replica ?? "") ?? board.shown[0];
      if (replica) board.openReplica(replica);
    },
  };
}

/**
 * The time of the step or decision next to a time, or null.
 *
 * @param by -1 or 1
 */
function neighbourTime({ model, shown }: ClusterBoard, at: number, by: number) {
  const times = [];
  for (const replica of shown) {
    const { axis } = replica;
    if (!axis) continue;
    const { firstStep, lastStep } = replica.model;
    const step = replica.stepAt(at);
    for (const one of [step - 1, step, step + 1])
      if (one >= firstStep && one <= lastStep) times.push(axis.begin(one), axis.end(one));
  }
  const { routes } = model;
  const after = routes.findIndex((route) => route.at > at);
  const next = after < 0 ? routes.length : after;
  times.push(...routes.slice(Math.max(0, next - 2), next + 1).map((route) => route.at));
  const beyond = times.filter((time) => (by > 0 ? time > at : time < at));
  if (!beyond.length) return null;
  return by > 0 ? Math.min(...beyond) : Math.max(...beyond);
}
