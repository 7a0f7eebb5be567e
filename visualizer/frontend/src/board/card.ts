/** The picture of the current step: what a notebook shows of a board when it has no kernel, and the postcard's box. */

import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { THEMES, type Theme } from "../drawing/palette.ts";
import { type Card, drawPostcard, POSTCARD } from "../drawing/postcard.ts";
import { pngOf } from "../host/png.ts";
import type { Board } from "./board.ts";
import type { ThemeName } from "./theme.ts";

const { width, height, scale } = POSTCARD;

/** The postcard as the bytes of a PNG file. */
export async function postcardPng(card: Card, theme: Theme) {
  const canvas = document.createElement("canvas");
  const painter = new CanvasPainter(canvas);
  painter.begin(width, height, scale / (globalThis.devicePixelRatio || 1), theme);
  drawPostcard(painter, card);
  return pngOf(painter.context.getImageData(0, 0, canvas.width, canvas.height));
}

/** What the board shows, as a card. */
export function cardOf(board: Board): Card {
  const { model, store, about } = board;
  const link = board.linkOf(board.state());
  return {
    model,
    step: store.step,
    selected: store.selected,
    title: about?.title,
    link: /^https?:/.test(link) ? link : null,
  };
}

/** Draws the board's postcard in a theme. */
export const cardDrawer = (board: Board) => (theme: ThemeName) =>
  postcardPng(cardOf(board), THEMES[theme]);
