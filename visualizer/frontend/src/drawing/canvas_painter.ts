/**
 * Draws on a canvas that is crisp on any screen, with the few marks that the board consists of.
 *
 * All lengths are in board pixels. The scale for projectors and the device's pixel ratio are applied here, so
 * that the drawing code does not need them.
 */

import type { Cells } from "./cells.ts";
import type { PlacedWord } from "./lane_words.ts";
import { drawMark, markOf } from "./marks.ts";
import type { Theme } from "./palette.ts";
import { paintedTerm, type Term } from "./terms.ts";

export type Paint = string | CanvasPattern;

/** size in board pixels */
type Font = { size?: number; bold?: boolean; mono?: boolean };

/** halo, plate: the colour that clears the ground around the letters, or behind all of them */
export type TextStyle = Font & {
  color?: string;
  align?: CanvasTextAlign;
  halo?: string;
  plate?: string;
};

/** in board pixels */
export type Rect = [x: number, y: number, width: number, height: number];

/** with the colour and the thickness of the hatching */
type CachedRect = [...Rect, color?: string, thickness?: number];

/** device pixels of a paint */
export interface Tile {
  side: number;
  pixels: Uint32Array; // side * side
  isCell?: boolean; // it begins with each cell; otherwise it repeats
}

const MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace';

/** The board's own fonts: the host's may be wide, and a canvas has no fallback. */
export const SANS =
  '-apple-system, "Segoe UI", Inter, "Helvetica Neue", Arial, "Liberation Sans", sans-serif';

/** The fonts, by size and form: putting their names together for each text takes longer than to draw it. */
const fonts: Map<number, string> = new Map();

function fontOf({ size = 11, bold = false, mono = false }: Font) {
  const key = 4096 * size + 2 * Number(bold) + Number(mono);
  const known = fonts.get(key) ?? `${bold ? "600 " : ""}${size}px ${mono ? MONO : SANS}`;
  fonts.set(key, known);
  return known;
}

/** Text widths by font and string: most strings are drawn in every frame. */
const widths: Map<string, Map<string, number>> = new Map();
const MOST_WIDTHS = 4000;

/** Measuring on a canvas of the page would force a layout if anything on the page has changed. */
const ruler = globalThis.OffscreenCanvas
  ? (new OffscreenCanvas(1, 1).getContext("2d") as OffscreenCanvasRenderingContext2D)
  : null;
let rulerFont = "";

const PERIOD = 28; // board pixels after which hatching (7) repeats, whole pixels at most ratios

/** The lines of repeating tiles, from (x1, y1) to (x2, y2). */
const LINES = {
  hatch: [-7, 0, 7].map((x) => [x - 2, 9, x + 9, -2]),
  back: [-5, 0, 5].map((x) => [x - 1, -1, x + 6, 6]),
  crossed: [
    [-1, -1, 6, 6],
    [-1, 6, 6, -1],
  ],
};

/** The painters of the page's canvases. */
const painters: WeakMap<EventTarget, CanvasPainter> = new WeakMap();

export class CanvasPainter {
  canvas: HTMLCanvasElement;
  context: CanvasRenderingContext2D;
  patterns: Map<string, CanvasPattern> = new Map();
  /** The tiles that have been drawn, by paint or mark and by opacity. */
  tiles: Map<Paint, Map<number, Tile>> = new Map();
  /** Has the cached picture. */
  kept: CanvasPainter | null = null;
  /** What that picture shows; null: it has to be drawn again. */
  keptKey: string | null = null;
  /** How often it was drawn, if it is a cached picture. */
  drawn = 0;
  /** The labels to write over the lanes of this picture. */
  words: PlacedWord[] = [];
  /** The terms that painted texts name, and the boxes of these texts in device pixels. */
  terms: { term: Term; box: Rect }[] = [];
  /** The pixels of small blocks. */
  cells: Cells | null = null;
  /** Texts to write at the end, by font. */
  #later: Map<string, (() => void)[]> | null = null;
  /** The font set last; null: resizing has reset it. */
  font?: string | null;
  theme!: Theme;
  /** Device pixels per board pixel. */
  ratio!: number;
  /** CSS pixels per board pixel. */
  scale!: number;
  width!: number;
  height!: number;

  constructor(canvas: HTMLCanvasElement) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d") as CanvasRenderingContext2D;
    painters.set(canvas, this);
  }

  /** The painted text that names a term under the pointer, in the window's pixels. */
  static wordAt({ target, clientX, clientY }: MouseEvent) {
    const painter = target && painters.get(target);
    if (!painter) return null;
    const { left: x, top: y, width } = painter.canvas.getBoundingClientRect();
    const scale = width / painter.canvas.width;
    for (const { term, box } of painter.terms) {
      const [left, top, wide, high] = box.map((length) => length * scale);
      const [right, below] = [clientX - x - left, clientY - y - top];
      if (right >= 0 && right <= wide && below >= 0 && below <= high)
        return { term, left: x + left, top: y + top, width: wide, height: high };
    }
    return null;
  }

  /**
   * Sizes and clears the canvas and sets the theme. Call it before each drawing. The picture may extend by `bleed` beyond
   * its width at both sides.
   */
  begin(inner: number, height: number, scale: number, theme: Theme, bleed = 0) {
    const { canvas, context, theme: before, ratio: ratioBefore } = this;
    const width = inner + 2 * bleed;
    const ratio = (globalThis.devicePixelRatio || 1) * scale;
    const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) {
      [canvas.width, canvas.height] = pixels;
      this.font = null;
      context.direction = "ltr"; // otherwise each text asks for the element's style
      canvas.style.width = `${width * scale}px`;
      canvas.style.height = `${height * scale}px`;
    }
    if (before !== theme || ratioBefore !== ratio) {
      this.patterns.clear();
      this.tiles.clear();
    }
    this.theme = theme;
    this.ratio = ratio;
    this.scale = scale;
    this.width = width;
    this.height = height;
    this.terms = [];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.globalAlpha = 1;
    if (bleed) context.translate(bleed, 0);
    return this;
  }

  /**
   * A picture of this canvas's size, drawn with `draw(painter)` and cached until `key`, theme or size changes,
   * for the parts that stay the same while the cursor moves. `lay` puts it on the canvas.
   */
  layer(key: string, draw: (painter: CanvasPainter) => void): CanvasPainter {
    this.kept ??= new CanvasPainter(document.createElement("canvas"));
    const { kept, theme, width, height, scale } = this;
    const full = `${key} ${width} ${height} ${this.ratio}`;
    if (this.keptKey !== full || kept.theme !== theme) {
      kept.begin(width, height, scale, theme);
      kept.context.setTransform(this.context.getTransform());
      draw(kept);
      this.keptKey = full;
      kept.drawn += 1;
    }
    return kept;
  }

  /** Drops the cached picture. */
  forget() {
    this.keptKey = null;
  }

  lay({ canvas, terms }: CanvasPainter) {
    const { context, font } = this;
    this.terms.push(...terms);
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(canvas, 0, 0);
    context.restore();
    this.font = font;
  }

  /** Puts parts of a picture of this size on the canvas, where they are there. */
  layParts({ canvas }: CanvasPainter, rects: Rect[]) {
    const { context, ratio } = this;
    const { a, e, f } = context.getTransform();
    context.setTransform(1, 0, 0, 1, 0, 0);
    for (const [x, y, width, height] of rects) {
      const [left, top] = [Math.floor(e + a * x), Math.floor(f + a * y)];
      const size = [Math.ceil(width * ratio) + 1, Math.ceil(height * ratio) + 1] as const;
      context.drawImage(canvas, left, top, ...size, left, top, ...size);
    }
    context.setTransform(a, 0, 0, a, e, f);
  }

  /** Runs `draw` at a fraction of the current opacity. */
  faded(alpha: number, draw: () => void) {
    const { context } = this;
    const before = context.globalAlpha;
    context.globalAlpha = before * alpha;
    draw();
    context.globalAlpha = before;
  }

  /** Runs `draw`, clipped to a rectangle. */
  clipped(x: number, y: number, width: number, height: number, draw: () => void) {
    this.#clippedTo((context) => context.rect(x, y, width, height), draw);
  }

  /** Runs `draw`, clipped to the path that `trace` draws. */
  #clippedTo(trace: (context: CanvasRenderingContext2D) => void, draw: () => void) {
    const { context, font } = this;
    context.save();
    context.beginPath();
    trace(context);
    context.clip();
    draw();
    context.restore();
    this.font = font;
  }

  /** Runs `draw`, clipped to a rectangle without its lower right corner. */
  withCutCorner([x, y, width, height]: Rect, corner: number, draw: () => void) {
    const [right, bottom] = [x + width, y + height];
    this.#clippedTo((context) => {
      context.moveTo(x, y);
      context.lineTo(right, y);
      context.lineTo(right, bottom - corner);
      context.lineTo(right - corner, bottom);
      context.lineTo(x, bottom);
    }, draw);
    this.line(right - corner, bottom, right, bottom - corner, this.theme.faint);
  }

  fill(x: number, y: number, width: number, height: number, paint: Paint) {
    this.context.fillStyle = paint;
    this.context.fillRect(x, y, width, height);
  }

  /** An outline that lies inside the rectangle. */
  frame(
    x: number,
    y: number,
    width: number,
    height: number,
    color: Paint,
    line: number = 1,
    dash: number[] = [],
  ) {
    const { context } = this;
    context.strokeStyle = color;
    context.lineWidth = line;
    if (dash.length) context.setLineDash(dash);
    context.strokeRect(x + line / 2, y + line / 2, width - line, height - line);
    if (dash.length) context.setLineDash([]);
  }

  /** A block that several requests share. */
  shared(...rect: Rect) {
    this.fill(...rect, this.theme.shared);
    this.frame(...rect, this.theme.sharedBorder);
  }

  /** A block that is only cached. */
  cached(...[x, y, width, height, color = this.theme.hatch, thickness = 1.4]: CachedRect) {
    this.fill(x, y, width, height, this.hatch(color, thickness));
    this.frame(x, y, width, height, color);
  }

  /** A straight line. */
  line(
    x1: number,
    y1: number,
    x2: number,
    y2: number,
    color: string,
    width: number = 1,
    dash: number[] = [],
  ) {
    const { context } = this;
    context.strokeStyle = color;
    context.lineWidth = width;
    if (dash.length) context.setLineDash(dash);
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    context.stroke();
    if (dash.length) context.setLineDash([]);
  }

  /** A filled triangle with its tip at (x, y), pointing "up", "down" or "right". */
  tip(x: number, y: number, direction: "up" | "down" | "right", color: string, size: number = 6) {
    const { context } = this;
    const half = size * 0.6;
    const [dx, dy] = { up: [0, size], down: [0, -size], right: [-size, 0] }[direction];
    context.fillStyle = color;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + dx + (dy ? -half : 0), y + dy + (dx ? -half : 0));
    context.lineTo(x + dx + (dy ? half : 0), y + dy + (dx ? half : 0));
    context.fill();
  }

  /** A filled circle. */
  disc(x: number, y: number, radius: number) {
    const { context, theme } = this;
    context.beginPath();
    context.arc(x, y, radius, 0, 7);
    context.fillStyle = theme.ink;
    context.fill();
  }

  /** An arrow from `from` up or down to its tip. */
  arrow(x: number, from: number, tip: number, color: string) {
    const isUp = tip < from;
    this.line(x, from, x, tip + (isUp ? 5 : -5), color, 1.4);
    this.tip(x, tip, isUp ? "up" : "down", color);
  }

  /** Sets the font if it differs, because setting it makes the browser recalculate styles. */
  useFont(style: Font) {
    const font = fontOf(style);
    if (font === this.font) return;
    this.font = font;
    this.context.font = font;
  }

  /** Runs `draw`, and writes its texts at the end, font by font, because another font takes as long as a text. */
  textsLast(draw: () => void) {
    const byFont: Map<string, (() => void)[]> = new Map();
    this.#later = byFont;
    draw();
    this.#later = null;
    for (const texts of byFont.values()) for (const write of texts) write();
  }

  /** Text on its baseline. */
  text(string: string, x: number, y: number, style: TextStyle = {}) {
    const later = this.#later;
    if (!later) return this.#write(string, x, y, style);
    const font = fontOf(style);
    const alpha = this.context.globalAlpha;
    const texts = later.get(font) ?? [];
    if (!texts.length) later.set(font, texts);
    const write = () => this.#write(string, x, y, style);
    texts.push(alpha === 1 ? write : () => this.faded(alpha, write));
  }

  #write(
    string: string,
    x: number,
    y: number,
    { size, bold, mono, color, align = "left", halo, plate }: TextStyle,
  ) {
    const { context } = this;
    this.useFont({ size, bold, mono });
    if (plate) this.fill(x - 1, y - 9, this.measure(string, { size, bold, mono }) + 2, 12, plate);
    context.textAlign = align;
    if (halo) {
      context.strokeStyle = halo;
      context.lineWidth = 3;
      context.lineJoin = "round";
      context.strokeText(string, x, y);
      context.lineJoin = "miter"; // the default again, for the lines that follow
    }
    context.fillStyle = color ?? this.theme.ink;
    context.fillText(string, x, y);
    const term = mono ? null : paintedTerm(string); // what requests say is mono
    if (!term) return;
    const width = this.measure(string, { size, bold });
    const before = align === "center" ? width / 2 : align === "right" ? width : 0;
    const { a, e, f } = context.getTransform();
    this.terms.push({ term, box: [e + a * (x - before), f + a * (y - 10), a * width, a * 14] });
  }

  /** Width of a string in the board's pixels. */
  measure(string: string, style: Font = {}): number {
    const font = fontOf(style);
    let known = widths.get(font);
    if (!known) widths.set(font, (known = new Map()));
    if (!known.has(string)) {
      if (known.size >= MOST_WIDTHS) known.clear();
      known.set(string, this.#widthOf(string, style));
    }
    return known.get(string) as number;
  }

  #widthOf(string: string, style: Font) {
    if (!ruler) {
      this.useFont(style);
      return this.context.measureText(string).width;
    }
    const font = fontOf(style);
    if (font !== rulerFont) ruler.font = rulerFont = font;
    return ruler.measureText(string).width;
  }

  /** The string, cut with an ellipsis so that it fits into `room`. */
  cut(string: string, room: number, style?: Font) {
    if (this.measure(string, style) <= room) return string;
    let length = string.length;
    while (length > 0 && this.measure(`${string.slice(0, length)}…`, style) > room) length -= 1;
    return length ? `${string.slice(0, length)}…` : "";
  }

  /** A name, cut in the middle: names of one group often begin alike, and differ at their ends. */
  cutName(name: string, room: number, style?: Font) {
    if (this.measure(name, style) <= room) return name;
    // No letter is narrower than two pixels, and a label may have thousands.
    const share = /\d$/.test(name) ? 0.7 : 0.5; // numbers tell names apart
    for (let kept = Math.min(name.length - 1, Math.ceil(room / 2)); kept > 1; kept -= 1) {
      const tail = Math.floor(kept * share);
      const shorter = `${name.slice(0, kept - tail)}…${name.slice(-tail)}`;
      if (this.measure(shorter, style) <= room) return shorter;
    }
    return this.cut(name.slice(0, 2), room, style);
  }

  /** Fills a rectangle with the mark of a lane; null: no lane. */
  mark(x: number, y: number, width: number, height: number, lane: number | null) {
    drawMark(this, [x, y, width, height], lane);
  }

  /** The hue of a lane alone, for lines. */
  hue(lane: number | null) {
    return markOf(this.theme, lane).hue;
  }

  /** Fills nested rectangles: the second is a hole in the first, the third is filled again. */
  fillRects(rects: Rect[], paint: Paint) {
    const { context } = this;
    context.beginPath();
    for (const rect of rects) context.rect(...rect);
    context.fillStyle = paint;
    context.fill("evenodd");
  }

  /** The length rounded to whole pixels of the device. */
  snap(length: number) {
    return Math.round(length * this.ratio) / this.ratio;
  }

  /** 45 degree hatching: "cached". */
  hatch(color: string, thickness: number = 1.4) {
    return this.#lines("hatch", 7, color, thickness);
  }

  /** Hatching in the other direction: "computed again". */
  backHatch(color: string) {
    return this.#lines("back", 5, color, 1.4);
  }

  /** Crossed lines: "in vain". */
  crossHatch(color: string) {
    return this.#lines("crossed", 5, color, 1);
  }

  #lines(name: keyof typeof LINES, size: number, color: string, width: number) {
    return this.tile(`${name} ${color} ${width}`, size, (tile) => {
      tile.strokeStyle = color;
      tile.lineWidth = width;
      tile.beginPath();
      for (const [x1, y1, x2, y2] of LINES[name]) {
        tile.moveTo(x1, y1);
        tile.lineTo(x2, y2);
      }
      tile.stroke();
    });
  }

  /** The mark of a lane on a cell as device pixels, in a square of `side` pixels that begins with the cell. Cached. */
  markPixels(lane: number | null, width: number, height: number, alpha: number): Tile {
    const { theme, ratio } = this;
    const side = Math.ceil(Math.max(width, height) * ratio) + 1;
    return this.#pixels(`${lane} ${width} ${height}`, side, alpha, (context) => {
      const painter = Object.assign(new CanvasPainter(context.canvas), { theme, ratio });
      painter.fill(0, 0, side, side, painter.hue(lane)); // a cell may be a pixel larger
      context.scale(ratio, ratio);
      context.clearRect(0, 0, width, height);
      painter.mark(0, 0, painter.snap(width), painter.snap(height), lane);
      return { isCell: true };
    });
  }

  /** A paint as device pixels: a square of `side` pixels, which repeats. Cached. */
  pixels(paint: Paint, alpha: number): Tile {
    const { ratio } = this;
    return this.#pixels(paint, Math.round(PERIOD * ratio), alpha, (context) => {
      context.scale(ratio, ratio);
      context.fillStyle = paint;
      context.fillRect(0, 0, PERIOD + 1, PERIOD + 1);
      return {};
    });
  }

  #pixels(
    key: Paint,
    side: number,
    alpha: number,
    draw: (context: CanvasRenderingContext2D) => Pick<Tile, "isCell">,
  ): Tile {
    const known = this.tiles.get(key) ?? new Map();
    this.tiles.set(key, known);
    if (!known.has(alpha)) {
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = side;
      const context = canvas.getContext("2d", { willReadFrequently: true });
      if (!context) throw new Error("the browser has no canvas");
      context.globalAlpha = alpha;
      const form = draw(context);
      const { data } = context.getImageData(0, 0, side, side);
      known.set(alpha, { side, pixels: new Uint32Array(data.buffer), ...form });
    }
    return known.get(alpha);
  }

  /** A repeating tile of `size` board pixels, drawn once at the device's resolution. */
  tile(
    key: string,
    size: number,
    draw: (context: CanvasRenderingContext2D) => void,
  ): CanvasPattern {
    const pattern = this.patterns.get(key) ?? this.patternOf(size, draw);
    this.patterns.set(key, pattern);
    return pattern;
  }

  patternOf(size: number, draw: (context: CanvasRenderingContext2D) => void): CanvasPattern {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = Math.max(1, Math.round(size * this.ratio));
    const context = canvas.getContext("2d") as CanvasRenderingContext2D;
    context.scale(canvas.width / size, canvas.width / size);
    draw(context);
    const pattern = this.context.createPattern(canvas, "repeat") as CanvasPattern;
    pattern.setTransform(new DOMMatrix().scale(size / canvas.width));
    return pattern;
  }
}
