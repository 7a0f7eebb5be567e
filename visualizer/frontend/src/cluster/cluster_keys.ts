/** The keys of a cluster's board, the list of them, and buttons for those that have no other control. */

import { buildFoot } from "../board/controls.ts";
import { bindKeys, buildHelp, movingKeys } from "../board/keys.ts";
import type { Axis } from "../drawing/time_axis.ts";
import type { ClusterBoard } from "./cluster_board.ts";
import { clusterMoments } from "./cluster_moments.ts";

const TICK = 100; // ms between two moments while it plays

const KEYS: [key: string, what: string][] = [
  ["space", "play or pause"],
  [", .   ← →", "the step or decision before or after the cursor; with Shift, ten"],
  ["↑ ↓", "select the previous or next decision"],
  [
    "M",
    "next decision worth a look: a wrong prediction, a failure, a move; with Shift, the previous",
  ],
  ["Home End", "first or last moment"],
  ["W S", "zoom in or out"],
  ["A D", "move the time axis left or right"],
  ["F", "show the whole run; press it again for the selected request"],
  ["V", "show less or more: lanes, memory, everything"],
  ["G", "tell me what happened: a guided tour of the run"],
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

/** Binds the keys, adds the list of them to the board, and returns the buttons below it. */
export function buildClusterKeys(board: ClusterBoard) {
  const act = actionsOf(board);
  bindKeys(
    board.root,
    { ...movingKeys(act), o: act.open, g: act.tell, v: act.level },
    () => !!board.model && !board.showsOne,
  );
  board.help = buildHelp(act.help, KEYS, MOUSE);
  return buildFoot([
    ["tell", "Tell me", "G", act.tell],
    ["play", "Play", "space", act.toggle],
    ["previous", "Previous decision", "↑", () => act.neighbour(-1)],
    ["next", "Next decision", "↓", () => act.neighbour(1)],
    ["moment", "Next worth a look", "M", () => act.moment(1)],
    ["fit", "Whole run or request", "F", act.fit],
    ["open", "Board of the replica", "O", act.open],
    ["help", "Keys and mouse", "?", act.help],
  ]);
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
    board.state.set({ playing: false });
  };
  board.signal.addEventListener("abort", () => clearInterval(timer));
  return {
    step: move,
    first: () => board.goTo(board.axis.from),
    last: () => board.goTo(board.axis.to),
    zoom: (factor: number) => board.zoom(factor),
    pan: (share: number) => board.pan(share),
    fit: () => board.fit(),
    tell: () => void board.tellMe(),
    level: () => board.showLevel(),
    help: () => board.toggleHelp(),
    escape() {
      if (!board.help?.hidden) board.toggleHelp();
      else if (board.showsOne) board.closeReplica();
      else board.selectRoute(null);
    },
    toggle() {
      if (timer) return stop();
      if (board.state.at >= board.axis.to) board.goTo(board.axis.from);
      board.state.set({ playing: true });
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
  for (const run of shown.flatMap(({ timed }) => timed)) {
    const axis = run.axis as Axis;
    const { firstStep, lastStep } = run.model;
    const step = run.stepAt(at);
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
