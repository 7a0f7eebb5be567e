/** The step's sentence, above the panels. It always has the height of two lines, so that the board does not move. */

import { Part } from "../board/part.ts";
import { patchChildren } from "../board/patch_children.ts";
import { h, tell } from "../drawing/html.ts";
import { breakLines } from "../drawing/text_lines.ts";
import { wordNodes } from "../drawing/words_html.ts";
import { compose, plain } from "../model/index.ts";
import type { MomentsBox } from "./moments_box.ts";
import { Painted, paintWords, SWATCH } from "./painted.ts";

/** Size and line height in px. A long sentence is set smaller before it takes more lines. */
const SIZES: Record<
  "wide" | "narrow",
  { reserved: number; sizes: [size: number, line: number][] }
> = {
  wide: {
    reserved: 56,
    sizes: [
      [20, 28],
      [18, 28],
      [16, 19],
      [14, 18.6],
    ],
  },
  narrow: {
    reserved: 92,
    sizes: [
      [17, 23],
      [15, 18.4],
      [13.5, 15.3],
    ],
  },
};
const WIDEST = 64; // em, as in board.css
const MOMENTS = 190; // px beside the sentence

export class SentencePanel extends Part {
  sentence = h("p.sentence");
  picture = new Painted(this.sentence);
  moments: MomentsBox;
  painted: Painted[];
  element: HTMLElement;

  constructor(board: Part["board"], moments: MomentsBox) {
    super(board);
    this.moments = moments;
    this.painted = [this.picture, ...moments.painted];
    this.element = board.panel
      ? this.sentence
      : h("div.lead", this.picture.element, moments.element);
    if (board.panel) this.sentence.classList.add("for-screen-readers");
  }

  /** The largest size in which the spans fit. */
  #fit(spans: Parameters<typeof breakLines>[1]) {
    const { narrow, unit, laidOutFor } = this.board;
    const width = laidOutFor / unit - (narrow ? 28 : 40 + MOMENTS);
    const { reserved, sizes } = SIZES[narrow ? "narrow" : "wide"];
    const [size, line] =
      sizes.find(([size, line]) => {
        const lines = breakLines(this.picture.painter, spans, {
          width: Math.min(width, WIDEST * size) - 2,
          size,
          swatch: SWATCH,
        });
        return lines.length * line <= reserved;
      }) ?? sizes[sizes.length - 1];
    return { size, line, reserved, width: Math.min(width, WIDEST * size) };
  }

  /** States what the sentence tells. */
  #tell(kinds: string[]) {
    const { step, status } = this.board.frame;
    tell(this.sentence, { step, status, told: kinds.join(" ") });
  }

  write() {
    const { board, sentence } = this;
    const { kinds, spans } = compose(board.frame, board.shownLevel);
    this.#tell(kinds);
    this.moments.write(board);
    patchChildren(sentence, wordNodes(spans, board.context(), board.panel ? undefined : new Set()));
    const { size, line, reserved } = this.#fit(spans);
    const px = (length: number) => `${length * board.unit}px`;
    sentence.style.minHeight = px(reserved);
    sentence.style.fontSize = px(size);
    sentence.style.lineHeight = px(line);
  }

  writeLabels() {
    this.moments.enable(this.board);
  }

  paint() {
    const { board, picture } = this;
    const { kinds, spans } = compose(board.frame, board.shownLevel);
    this.#tell(kinds);
    this.moments.paint(board);
    const form = this.#fit(spans);
    const painter = picture.begin(form.width, form.reserved, board, plain(spans));
    paintWords(painter, spans, form, board.context());
  }
}
