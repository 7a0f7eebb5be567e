/**
 * The box with the postcard of the current step: a preview, and the picture as SVG, PNG or GIF. Boards load it, with the
 * tour, when it is first opened.
 */

// A board has loaded this already. Without it, what both need would be a file of its own.
import "./board.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h } from "../drawing/html.ts";
import type { Theme } from "../drawing/palette.ts";
import {
  type Card,
  drawPostcard,
  inPlace,
  POSTCARD,
  postcardTitle,
  stepsAround,
} from "../drawing/postcard.ts";
import { SvgPainter } from "../drawing/svg_painter.ts";
import { GifWriter } from "../host/gif.ts";
import type { Board } from "./board.ts";
import { Box } from "./box.ts";
import { cardOf, postcardPng } from "./card.ts";

const { width, height, scale } = POSTCARD;
const MOST_FRAMES = 120;
const LAST = 2000; // ms that the last frame of a GIF is shown

/** The postcard as the text of an SVG file. */
function postcardSvg(card: Card, theme: Theme) {
  const painter = new SvgPainter().begin(width, height, scale, theme);
  drawPostcard(painter, card);
  return painter.svg(postcardTitle(card));
}

/** The steps of a moving postcard: the selected range, or those around the step. At most `MOST_FRAMES`. */
function stepsToShow({
  model,
  store,
}: Pick<Board, "model" | "store">): [first: number, last: number] {
  const around = stepsAround(model, store.step);
  const [first, last] = store.range ?? [around.first, around.last];
  return [first, Math.min(last, first + MOST_FRAMES - 1)];
}

/**
 * The postcards of the steps from `first` to `last` as a GIF, each shown for `milliseconds`. `onProgress(share)` is
 * called after each; it returns false to stop.
 */
async function postcardGif(
  card: Card,
  theme: Theme,
  [first, last]: [first: number, last: number],
  milliseconds: number,
  onProgress: (share: number) => unknown,
) {
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

export class PostcardBox extends Box {
  card!: Card;
  svg!: string;
  picture = h("img");
  first = this.button("svg", () => this.save("svg", this.svg));
  gif = this.button("gif", () => this.saveGif());
  bar = h("progress", { max: 1, value: 0, "aria-label": "Drawing the GIF", hidden: true });
  element = h(
    "div.box.postcard",
    { role: "dialog", "aria-label": "Postcard of this step", hidden: true },
    this.picture,
    h(
      "p",
      "Save as ",
      this.first,
      " ",
      this.button("png", () => this.savePng()),
      " ",
      this.gif,
      " ",
      this.bar,
      " ",
      h("button", { click: () => this.close() }, "Close"),
    ),
  );

  button(format: string, click: () => void) {
    return h("button", { "data-format": format, click }, format.toUpperCase());
  }

  open() {
    this.card = cardOf(this.board);
    this.svg = postcardSvg(this.card, this.board.theme);
    this.picture.src = `data:image/svg+xml,${encodeURIComponent(this.svg)}`;
    this.picture.alt = postcardTitle(this.card);
    this.gif.textContent = `GIF of steps ${stepsToShow(this.board).join(" to ")}`;
    this.element.hidden = false;
    this.first.focus({ preventScroll: true });
  }

  /** Draws a GIF, with a bar that shows the progress. Closing the box ends it. */
  async saveGif() {
    const { board, bar, card } = this;
    const steps = stepsToShow(board);
    bar.hidden = false;
    const onProgress = (share: number) => {
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

  save(format: "svg" | "png" | "gif", content: BlobPart, about: string = `step-${this.card.step}`) {
    const type = { svg: "image/svg+xml", png: "image/png", gif: "image/gif" }[format];
    const href = URL.createObjectURL(new Blob([content], { type }));
    h("a", { href, download: `underglass-${about}.${format}` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  }
}
