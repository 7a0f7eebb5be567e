/** Boards on the pages of the static site. */

import type { Board, BoardOptions } from "../board/board.ts";
import { takeKeysOfPage } from "../board/keys.ts";
import type { Answer, Seat } from "../board/seat.ts";
import type { Opening } from "../board/view.ts";
import { keepInAddress, readAddress } from "../host/address.ts";
import { mount } from "../host/widget.ts";
import type { Told } from "../tour/open_tour.ts";

/** The one element that a selector names. */
export function one(selector: string): HTMLElement {
  const element = document.querySelector(selector);
  if (!(element instanceof HTMLElement)) throw new Error(`the page has no ${selector}`);
  return element;
}

/**
 * Draws a log that has the page to itself: the page's address follows the board, and the board gets the page's keys.
 */
export async function drawPageBoard(
  host: HTMLElement,
  log: Uint8Array,
  options: Opening & Partial<Omit<BoardOptions, "onChange">> = {},
) {
  const { signal = new AbortController().signal } = options;
  let follow = () => {};
  const board = (await mount(host, {
    ...options,
    ...readAddress(location.hash),
    log,
    seat: seatInPage(log),
    tell: tellInPage(log),
    address: false, // `mount` would also open files that are dropped on the page
    signal,
    onChange: () => follow(),
  })) as Board;
  takeKeysOfPage(board.root, signal);
  follow = keepInAddress(board, signal);
  return board;
}

/** The scheduler's seat in a log: this page's Python runs it again. */
export const seatInPage = (log: Uint8Array): Seat => ({
  python: {
    async ask(question, _signal, onAnswer = () => {}) {
      const { runPython } = await import("./page_kernel.ts");
      const source = `from page_seat import asked\nasked.answer("/tmp/log", ${JSON.stringify(JSON.stringify(question))})\n`;
      const last = await runPython(source, {
        files: { "/tmp/log": log },
        onOutput: ({ answer }) => answer && !answer.done && onAnswer(answer),
      });
      return last.answer as Answer;
    },
  },
  load: () => import("../seat_entry.ts"),
});

/** What this page's Python tells of a log; null: it cannot read the log. */
export const tellInPage = (log: Uint8Array) => async (): Promise<Told | null> => {
  const { runPython } = await import("./page_kernel.ts");
  const source = 'from page_open import find_regimes\nfind_regimes("/tmp/trace")\n';
  const { options } = await runPython(source, { files: { "/tmp/trace": log } });
  return { scenes: options?.run.tour, saved: options?.run.saved };
};

/** The log and the opening that a `.board` of a page names. */
export function namedIn({
  dataset: { log = "", step, selected, title = "", run = "null" },
}: HTMLElement) {
  const opening = { step: Number(step), selected: Number(selected) };
  return { log, title, opening, run: JSON.parse(run) };
}
