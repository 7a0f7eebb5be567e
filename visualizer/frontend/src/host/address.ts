/**
 * A view as text: as a URL fragment (#step=30&selected=8&from=10&to=40&range=12-20&axis=time&level=lanes) and as a Python call
 * that shows it again. A fragment written by hand may say `select`, as the Python call does. Pure functions, except `keepInAddress`.
 */

import type { Board, BoardState } from "../board/board.ts";
import { AXES, type Opening, SLO } from "../board/view.ts";

const QUIET = 250; // ms without a change before the address is written

/** The view that a fragment describes; empty if it describes none. */
export function readAddress(fragment: string): Opening {
  const asked = new URLSearchParams(fragment.replace(/^#/, ""));
  const number = (name: string) =>
    /^\d+$/.test(asked.get(name) ?? "") ? Number(asked.get(name)) : undefined;
  const opening: Opening = {};
  const [step, from, to] = [number("step"), number("from"), number("to")];
  if (step !== undefined) opening.step = step;
  for (const name of ["select", "selected"])
    if (asked.has(name)) opening.selected = number(name) ?? null;
  if (from !== undefined && to !== undefined && to > from) opening.window = [from, to];
  const range = /^(\d+)-(\d+)$/.exec(asked.get("range") ?? "");
  if (range && Number(range[1]) <= Number(range[2]))
    opening.range = [Number(range[1]), Number(range[2])];
  const axis = AXES.find((one) => one === asked.get("axis"));
  if (axis) opening.axis = axis;
  const slo = /^([\d.]+)-([\d.]+)$/.exec(asked.get("slo") ?? "");
  if (slo) opening.slo = { ttft: 1000 * Number(slo[1]), itl: 1000 * Number(slo[2]) };
  if (asked.get("panel")) opening.only = asked.get("panel");
  if (asked.get("level")) opening.level = asked.get("level") as string;
  return opening;
}

/** The fragment for a view; fields that are as usual are left out. */
export function writeAddress(state: BoardState) {
  const { step, selected, window, range, axis, slo, only, level } = state;
  const parts = [`step=${step}`, `selected=${selected ?? ""}`];
  if (window) parts.push(`from=${window[0]}`, `to=${window[1]}`);
  if (range) parts.push(`range=${range[0]}-${range[1]}`);
  if (axis === "time") parts.push("axis=time");
  if (isOwn(slo)) parts.push(`slo=${slo.ttft / 1000}-${slo.itl / 1000}`);
  if (only) parts.push(`panel=${only}`);
  if (level) parts.push(`level=${level}`);
  return `#${parts.join("&")}`;
}

/** Whether the reader has set other limits than the usual ones. */
const isOwn = (slo: BoardState["slo"]) => slo && (slo.ttft !== SLO.ttft || slo.itl !== SLO.itl);

/** The Python call that shows the view in a notebook. */
export function pythonFor(state: BoardState) {
  const { step, selected, window, range, axis, slo, only, level } = state;
  const given = [`step=${step}`];
  if (selected != null) given.push(`select=${selected}`);
  if (window) given.push(`window=(${window.join(", ")})`);
  if (range) given.push(`range=(${range.join(", ")})`);
  if (axis === "time") given.push('axis="time"');
  if (isOwn(slo)) given.push(`slo=(${slo.ttft / 1000}, ${slo.itl / 1000})`);
  if (only) given.push(`panel="${only}"`);
  if (level) given.push(`level="${level}"`);
  return `show(log, ${given.join(", ")})`;
}

/** Removes a view from the page's address. */
export function forgetAddress() {
  try {
    history.replaceState(history.state, "", location.pathname + location.search);
  } catch {
    // A frame without its own address may not change it.
  }
}

/** Keeps the board's view in the page's address, and follows changes of the address. */
export function keepInAddress(board: Board, signal: AbortSignal) {
  let timer: number | undefined;
  const write = () => {
    const fragment = writeAddress(board.state());
    if (fragment === location.hash) return;
    try {
      history.replaceState(history.state, "", fragment);
    } catch {
      // A frame without its own address may not change it. The link box still works.
    }
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  // The event's address, because a write that was due may have replaced the page's since.
  const follow = ({ newURL }: HashChangeEvent) =>
    board.model && board.restore(readAddress(new URL(newURL).hash));
  addEventListener("hashchange", follow, { signal });
  return () => {
    clearTimeout(timer);
    timer = setTimeout(write, QUIET);
  };
}
