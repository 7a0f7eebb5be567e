/**
 * The scheduler's seat, as far as a board knows it: Python that runs the board's log again, and a page that is loaded
 * when the reader first sits down. See `src/seat/`.
 */

import type { Facts } from "../compare/compare.ts";
import { h } from "../drawing/html.ts";
import type { WidgetModel } from "../host/kernel_sync.ts";
import type { Board } from "./board.ts";

/** words of Python: texts, and requests as numbers */
export type Words = (string | number)[];

/** a choice as Python has it, see `engine/simulation/choice.py` */
export type Choice = { type: string } & Record<string, string | number | null>;

export interface Fact {
  name: string;
  words: Words;
  hindsight: boolean; // the scheduler could not know it
}

export interface Candidate {
  choice: Choice;
  words: Words;
  happened: boolean;
  facts: Fact[];
  blocks: number[];
  progress: [done: number, total: number] | null;
}

export interface Decision {
  kind: string;
  step: number;
  question: Words;
  candidates: Candidate[];
}

export interface Consequence {
  busy_ms: [before: number, after: number];
  words: Words;
}

/** what `visualizer/seat/answers.py` asks for */
export type Question =
  | { seat: "decisions"; step: number }
  | { seat: "take"; step: number; choice: Choice }
  | { seat: "helped" };

/** one of its answers; the last one is `done` */
export interface Answer {
  done: boolean;
  error?: string;
  decisions?: Decision[];
  next?: number | null; // the next step with a decision
  previous?: number | null;
  settings?: { seats: number; budget: number; blocks: number };
  note?: string;
  consequence?: Consequence;
  step?: number; // of the choice, in both logs
  facts?: Facts;
  a?: Uint8Array; // the logs of what happened and of the choice
  b?: Uint8Array;
  words?: string; // a change that has been tried
  said?: string;
  best?: { words: string }[];
}

/** Asks Python. Resolves with the last answer; `onAnswer` gets those before it. */
export type Ask = (
  question: Question,
  signal: AbortSignal,
  onAnswer?: (answer: Answer) => void,
) => Promise<Answer>;

/** Where Python is that runs the log of a board again: behind a route, in a notebook's kernel, or in this page. */
export type Python = (
  | { route: string; headers?: () => Record<string, string>; fetch?: Fetch }
  | { kernel: WidgetModel }
  | { ask: Ask }
) & { replica?: string }; // of a cluster's log

/** as a page fetches */
export type Fetch = (url: string, init: FetchInit) => Promise<Response>;
export interface FetchInit {
  headers: Record<string, string>;
  signal: AbortSignal;
  method?: string;
  body?: string;
}

/** the page is loaded when the reader first sits down */
export interface Seat {
  python: Python;
  load: () => Promise<{
    openSeat: (board: Board, python: Python) => unknown;
    answerOnBoard: (board: Board, python: Python, signal: AbortSignal) => unknown;
  }>;
}

/** A seat whose Python is behind a route of the page's server, with the page beside it. */
export const seatBehind = (
  route: string,
  page = "seat.js",
  headers?: () => Record<string, string>,
  replica?: string,
): Seat => ({
  python: { route, headers, replica },
  load: () => pageAt(new URL(page, location.href).href),
});

/** The page behind an address. */
export const pageAt = (url: string) => import(url) as ReturnType<Seat["load"]>;

const NO_PYTHON = "This page has no Python to run the log again: underglass open FILE";

/** Sits the reader down at the step of the cursor, or says why that is not possible. */
export async function takeSeat(board: Board) {
  const why = await withPython(board, ({ openSeat }, python) => openSeat(board, python));
  if (why) board.root.append(why);
}

/** Shows what would have helped the run below its sentence; a second call takes it away. */
export async function showHelp(board: Board) {
  const { run, root, signal } = board;
  const isShown = root.querySelector(".run ~ .would-help");
  run.ends.abort();
  if (isShown) return;
  run.ends = new AbortController();
  const until = AbortSignal.any([signal, run.ends.signal]);
  const why = await withPython(board, (page, python) => page.answerOnBoard(board, python, until));
  if (why) run.sentence.element.after(why);
}

type Page = Awaited<ReturnType<Seat["load"]>>;

async function withPython({ seat, root }: Board, use: (page: Page, python: Python) => unknown) {
  root.querySelector(".no-seat")?.remove();
  const why = seat
    ? await seat.load().then((page) => void use(page, seat.python), String)
    : NO_PYTHON;
  return why && h("p.note.no-seat", { role: "status" }, why);
}
