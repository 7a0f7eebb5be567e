/**
 * The seats of the batch as a fixed row of cells: the mark and the name of the request in each; empty ones are
 * dashed.
 */

import type { Frame } from "../model/frame.ts";
import type { Model } from "../model/model.ts";
import type { CanvasPainter } from "./canvas_painter.ts";

type SeatsScene = { frame: Frame; model: Model; width: number; selected: number | null };

const CELL = { height: 13, gap: 8, least: 15 };
const NAME = { size: 11, bold: true };
export const SEATS_HEIGHT = 30;
const COUNTED = 3; // places for the number of the others

/**
 * The request in each of `all` seats during the step, or null; one that ends in the step still has its seat. A request
 * sits in the seat of its lane if there is one, and stays there; one with several samples has several.
 */
export function seatsOf(frame: Frame, all: number): (number | null)[] {
  const { running, state, model, story } = frame;
  const seats = new Array(all).fill(null);
  const rest: number[] = [];
  const ended = story.rows.map(({ request }) => request).filter((id) => !state.requests.get(id));
  for (const id of [...running, ...ended]) {
    const lane = model.laneOf(id) ?? all;
    const slots = state.requests.get(id)?.num_seqs ?? 1;
    const isFree = lane < all && seats[lane] === null;
    if (isFree) seats[lane] = id;
    for (let i = isFree ? 1 : 0; i < slots; i += 1) rest.push(id);
  }
  for (const id of rest) {
    const free = seats.indexOf(null);
    if (free >= 0) seats[free] = id;
  }
  return seats;
}

/** How many seats fit in `width`; with more of them, the last place counts the others. */
export function seatsShown(all: number, width: number) {
  const most = Math.floor((width + CELL.gap) / (CELL.least + CELL.gap));
  return all <= most ? all : most - COUNTED;
}

/** The distance between two seats. */
function pitchOf(all: number, width: number) {
  const shown = seatsShown(all, width);
  return (width + CELL.gap) / (shown < all ? shown + COUNTED : Math.max(shown, 4));
}

/** The seat at `x`, or -1. */
export function seatAt(x: number, all: number, width: number) {
  const at = Math.floor(x / pitchOf(all, width));
  return at < seatsShown(all, width) ? at : -1;
}

/** Draws the seats of a frame. */
export function drawSeats(painter: CanvasPainter, { frame, model, width, selected }: SeatsScene) {
  const { all } = frame.seats;
  const shown = seatsShown(all, width);
  const seats = seatsOf(frame, all);
  const pitch = pitchOf(all, width);
  const cell = pitch - CELL.gap;
  for (let i = 0; i < shown; i += 1) {
    const id = seats[i];
    const x = i * pitch;
    if (id === null) {
      painter.frame(x, 0, cell, CELL.height, painter.theme.faint, 1, [3, 2]);
      const style = { size: 10.5, color: painter.theme.muted };
      if (painter.measure("empty", style) <= cell + 4) painter.text("empty", x, 27, style);
      continue;
    }
    painter.mark(x, 0, cell, CELL.height, model.laneOf(id));
    if (id === selected) painter.fill(x, CELL.height + 1.5, cell, 2, painter.theme.ink);
    const { name } = model.requestSpan(id);
    const words = painter.cutName(name, Math.min(cell + 4, painter.width - x), NAME);
    if (words.length > 2 || words === name) painter.text(words, x, 27, NAME);
  }
  if (shown === all) return;
  const others = seats.slice(shown).filter((id) => id !== null).length;
  const words = `+${all - shown}`;
  painter.text(words, shown * pitch, 10, { bold: true });
  painter.text(others ? `${others} taken` : "empty", shown * pitch, 26, {
    size: 10.5,
    color: painter.theme.muted,
  });
}
