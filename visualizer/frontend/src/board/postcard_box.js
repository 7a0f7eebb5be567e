/** The box with the postcard of the current step: a preview, and the picture as SVG or PNG. */

import { CanvasPainter } from "../drawing/canvas_painter.js";
import { h } from "../drawing/html.js";
import { THEMES } from "../drawing/palette.js";
import { drawPostcard, POSTCARD, postcardTitle } from "../drawing/postcard.js";
import { SvgPainter } from "../drawing/svg_painter.js";
import { pngOf } from "../host/png.js";

const { width, height, scale } = POSTCARD;

/** The postcard as the text of an SVG file. `card` as in `drawPostcard`. */
export function postcardSvg(card, theme) {
  const painter = new SvgPainter().begin(width, height, scale, theme);
  drawPostcard(painter, card);
  return painter.svg(postcardTitle(card));
}

/** The postcard as the bytes of a PNG file, on a light ground unless a theme is given. */
export async function postcardPng(card, theme = THEMES.light) {
  const canvas = document.createElement("canvas");
  const painter = new CanvasPainter(canvas);
  painter.begin(width, height, scale / (globalThis.devicePixelRatio || 1), theme);
  drawPostcard(painter, card);
  return pngOf(painter.context.getImageData(0, 0, canvas.width, canvas.height));
}

/** What the board shows, as a card. */
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
  constructor(board) {
    this.board = board;
    this.picture = h("img", {});
    const button = (format, act) => {
      const element = h("button", { type: "button", "data-format": format }, format.toUpperCase());
      element.addEventListener("click", act);
      return element;
    };
    const close = h("button", { type: "button" }, "Close");
    close.addEventListener("click", () => this.close());
    this.first = button("svg", () => this.save("svg", this.svg));
    this.element = h(
      "div",
      {
        class: "box postcard",
        role: "dialog",
        "aria-label": "Postcard of this step",
        hidden: true,
      },
      this.picture,
      h(
        "p",
        {},
        "Save as ",
        this.first,
        " ",
        button("png", () => this.savePng()),
        " ",
        close,
      ),
    );
  }

  get isOpen() {
    return !this.element.hidden;
  }

  open() {
    this.card = cardOf(this.board);
    this.svg = postcardSvg(this.card, this.board.theme);
    this.picture.src = `data:image/svg+xml,${encodeURIComponent(this.svg)}`;
    this.picture.alt = postcardTitle(this.card);
    this.element.hidden = false;
    this.first.focus({ preventScroll: true });
  }

  close() {
    this.element.hidden = true;
    this.board.root.focus({ preventScroll: true });
  }

  async savePng() {
    this.save("png", await postcardPng(this.card, this.board.theme));
  }

  save(format, content) {
    const type = { svg: "image/svg+xml", png: "image/png" }[format];
    const href = URL.createObjectURL(new Blob([content], { type }));
    h("a", { href, download: `underglass-step-${this.card.step}.${format}` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  }
}
