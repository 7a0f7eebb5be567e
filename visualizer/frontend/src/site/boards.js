/** Boards on the pages of the static site. */

/** @import { Board, BoardOptions } from "../board/board.js" */
/** @import { Opening } from "../board/view.js" */
import { takeKeysOfPage } from "../board/keys.js";
import { keepInAddress, readAddress } from "../host/address.js";
import { mount } from "../host/widget.js";

/** The one element that a selector names. @param {string} selector @returns {HTMLElement} */
export function one(selector) {
  const element = document.querySelector(selector);
  if (!(element instanceof HTMLElement)) throw new Error(`the page has no ${selector}`);
  return element;
}

/** The bytes of a file of this site. @param {string} url */
export async function fetchBytes(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}

/**
 * Draws a log that has the page to itself: the page's address follows the board, and the board gets the page's keys.
 *
 * @param {HTMLElement} host @param {Uint8Array} log
 * @param {Opening & Partial<Omit<BoardOptions, "onChange">>} options
 */
export async function drawPageBoard(host, log, options = {}) {
  const { signal = new AbortController().signal } = options;
  let follow = () => {};
  const board = /** @type {Board} */ (
    await mount(host, {
      ...options,
      ...readAddress(location.hash),
      log,
      address: false, // `mount` would also open files that are dropped on the page
      signal,
      onChange: () => follow(),
    })
  );
  takeKeysOfPage(board.root, signal);
  follow = keepInAddress(board, signal);
  return board;
}

/** The log and the opening that a `.board` of a page names. @param {HTMLElement} host */
export function namedIn({ dataset: { log = "", step, selected, title = "" } }) {
  return { log, title, opening: { step: Number(step), selected: Number(selected) } };
}
