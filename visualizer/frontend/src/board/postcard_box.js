/** The box with the postcard of the current step: a preview, and the picture as SVG or PNG. */

/** @import { Theme } from "../drawing/palette.js" */
/** @import { Card } from "../drawing/postcard.js" */
/** @import { Board } from "./board.js" */
import { CanvasPainter } from "../drawing/canvas_painter.js";
import { h } from "../drawing/html.js";
import { THEMES } from "../drawing/palette.js";
import {
  drawPostcard,
  inPlace,
  POSTCARD,
  postcardTitle,
  stepsAround,
} from "../drawing/postcard.js";
import { SvgPainter } from "../drawing/svg_painter.js";
import { GifWriter } from "../host/gif.js";
import { pngOf } from "../host/png.js";

const { width, height, scale } = POSTCARD;
const MOST_FRAMES = 120;
const LAST = 2000; // ms that the last frame of a GIF is shown

/** The postcard as the text of an SVG file. @param {Card} card @param {Theme} theme */
export function postcardSvg(card, theme) {
  const painter = new SvgPainter().begin(width, height, scale, theme);
  drawPostcard(painter, card);
  return painter.svg(postcardTitle(card));
}

/**
 * The postcard as the bytes of a PNG file, on a light ground unless a theme is given.
 *
 * @param {Card} card @param {Theme} [theme]
 */
export async function postcardPng(card, theme = THEMES.light) {
  const canvas = document.createElement("canvas");
  const painter = new CanvasPainter(canvas);
  painter.begin(width, height, scale / (globalThis.devicePixelRatio || 1), theme);
  drawPostcard(painter, card);
  return pngOf(painter.context.getImageData(0, 0, canvas.width, canvas.height));
}

/**
 * The steps of a moving postcard: the selected range, or those around the step. At most `MOST_FRAMES`.
 *
 * @param {Pick<Board, "model" | "store">} board
 * @returns {[first: number, last: number]}
 */
export function stepsToShow({ model, store }) {
  const around = stepsAround(model, store.step);
  const [first, last] = store.range ?? [around.first, around.last];
  return [first, Math.min(last, first + MOST_FRAMES - 1)];
}

/**
 * The postcards of the steps from `first` to `last` as a GIF, each shown for `milliseconds`. `onProgress(share)` is
 * called after each; it returns false to stop.
 *
 * @param {Card} card @param {Theme} theme @param {[first: number, last: number]} steps @param {number} milliseconds
 * @param {(share: number) => boolean | void} onProgress
 */
export async function postcardGif(card, theme, [first, last], milliseconds, onProgress) {
  const canvas = document.createElement("canvas");
  const painter = new CanvasPainter(canvas);
  const gif = new GifWriter(width, height);
  const place = inPlace(card.model, [first, last]);
  for (let step = first; step <= last; step += 1) {
    painter.begin(width, height, 1 / (globalThis.devicePixelRatio || 1), theme);
    drawPostcard(painter, { ...card, ...place, step });
    const pixels = painter.context.getImageData(0, 0, canvas.width, canvas.height);
    gif.add(pixels, step === last ? LAST : milliseconds);
    if (onProgress((step + 1 - first) / (last + 1 - first)) === false) return null;
    await new Promise((resolve) => setTimeout(resolve)); // the page's turn
  }
  return gif.blob();
}

/** What the board shows, as a card. @param {Board} board @returns {Card} */
export function cardOf(board) {
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

export class PostcardBox {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.picture = h("img", {});
    /** @param {string} format @param {() => void} act */
    const button = (format, act) => {
      const element = h("button", { type: "button", "data-format": format }, format.toUpperCase());
      element.addEventListener("click", act);
      return element;
    };
    const close = h("button", { type: "button" }, "Close");
    close.addEventListener("click", () => this.close());
    this.first = button("svg", () => this.save("svg", this.svg));
    this.bar = h("progress", { max: 1, value: 0, "aria-label": "Drawing the GIF", hidden: true });
    this.gif = button("gif", () => this.saveGif());
    const buttons = [this.first, " ", button("png", () => this.savePng()), " ", this.gif, " "];
    this.element = h(
      "div",
      {
        class: "box postcard",
        role: "dialog",
        "aria-label": "Postcard of this step",
        hidden: true,
      },
      this.picture,
      h("p", {}, "Save as ", ...buttons, this.bar, " ", close),
    );
  }

  get isOpen() {
    return !this.element.hidden;
  }

  open() {
    /** @type {Card} */
    this.card = cardOf(this.board);
    /** @type {string} */
    this.svg = postcardSvg(this.card, this.board.theme);
    this.picture.src = `data:image/svg+xml,${encodeURIComponent(this.svg)}`;
    this.picture.alt = postcardTitle(this.card);
    this.gif.textContent = `GIF of steps ${stepsToShow(this.board).join(" to ")}`;
    this.element.hidden = false;
    this.first.focus({ preventScroll: true });
  }

  close() {
    this.element.hidden = true;
    this.board.root.focus({ preventScroll: true });
  }

  /** Draws a GIF, with a bar that shows the progress. Closing the box ends it. */
  async saveGif() {
    const { board, bar, card } = this;
    const steps = stepsToShow(board);
    bar.hidden = false;
    /** @param {number} share */
    const onProgress = (share) => {
      bar.value = share;
      return this.isOpen;
    };
    const gif = await postcardGif(card, board.theme, steps, 1000 / board.store.speed, onProgress);
    bar.hidden = true;
    if (gif) this.save("gif", gif, `steps-${steps.join("-")}`);
  }

  async savePng() {
    this.save("png", await postcardPng(this.card, this.board.theme));
  }

  /** @param {"svg" | "png" | "gif"} format @param {BlobPart} content @param {string} [about] */
  save(format, content, about = `step-${this.card.step}`) {
    const type = { svg: "image/svg+xml", png: "image/png", gif: "image/gif" }[format];
    const href = URL.createObjectURL(new Blob([content], { type }));
    h("a", { href, download: `underglass-${about}.${format}` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  }
}
