/**
 * Draws on a canvas that is crisp on any screen, with the few marks that the board consists of.
 *
 * All lengths are in board pixels. The scale for projectors and the device's pixel ratio are applied here, so
 * that the drawing code does not need them.
 *
 * @typedef {string | CanvasPattern} Paint
 * @typedef {{size?: number, bold?: boolean, mono?: boolean}} Font  size in board pixels
 * @typedef {Font & {color?: string, align?: CanvasTextAlign, halo?: string}} TextStyle
 * @typedef {[x: number, y: number, width: number, height: number]} Rect  in board pixels
 * @typedef {object} Tile  device pixels of a paint
 * @property {number} side
 * @property {Uint32Array} pixels  side * side
 * @property {boolean} [isCell]    it begins with each cell; otherwise it repeats
 */

/** @import { Cells } from "./cells.js" */
/** @import { LaneWord } from "./lane_words.js" */
/** @import { Theme } from "./palette.js" */
import { drawMark, markOf } from "./marks.js";

const MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace';

/** The board's own fonts: the host's may be wide, and a canvas has no fallback. */
export const SANS =
  '-apple-system, "Segoe UI", Inter, "Helvetica Neue", Arial, "Liberation Sans", sans-serif';

/** @type {(font: Font) => string} */
const fontOf = ({ size = 11, bold = false, mono = false }) =>
  `${bold ? "600 " : ""}${size}px ${mono ? MONO : SANS}`;

/** Text widths by font and string: most strings are drawn in every frame. @type {Map<string, Map<string, number>>} */
const widths = new Map();
const MOST_WIDTHS = 4000;

const PERIOD = 28; // board pixels after which hatching (7) repeats, whole pixels at most ratios

export class CanvasPainter {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    /** @type {Map<string, CanvasPattern>} */
    this.patterns = new Map();
    /** The tiles that have been drawn, by paint or mark and by opacity. @type {Map<Paint, Map<number, Tile>>} */
    this.tiles = new Map();
    /** Has the cached picture. @type {CanvasPainter | null} */
    this.kept = null;
    /** What that picture shows; null: it has to be drawn again. @type {string | null} */
    this.keptKey = null;
    /** The labels to write over the lanes of this picture. @type {LaneWord[]} */
    this.words = [];
    /** The pixels of small blocks. @type {Cells | null} */
    this.cells = null;
  }

  /**
   * Sizes and clears the canvas and sets the theme. Call it before each drawing.
   *
   * @param {number} width @param {number} height @param {number} scale @param {Theme} theme
   */
  begin(width, height, scale, theme) {
    const { canvas, context, theme: before, ratio: ratioBefore } = this;
    const ratio = (globalThis.devicePixelRatio || 1) * scale;
    const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) {
      [canvas.width, canvas.height] = pixels;
      /** The font set last; null: resizing has reset it. @type {string | null | undefined} */
      this.font = null;
      canvas.style.width = `${width * scale}px`;
      canvas.style.height = `${height * scale}px`;
    }
    if (before !== theme || ratioBefore !== ratio) {
      this.patterns.clear();
      this.tiles.clear();
    }
    /** @type {Theme} */
    this.theme = theme;
    /** Device pixels per board pixel. @type {number} */
    this.ratio = ratio;
    /** CSS pixels per board pixel. @type {number} */
    this.scale = scale;
    /** @type {number} */
    this.width = width;
    /** @type {number} */
    this.height = height;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.globalAlpha = 1;
    return this;
  }

  /**
   * A picture of this canvas's size, drawn with `draw(painter)` and cached until `key`, theme or size changes,
   * for the parts that stay the same while the cursor moves. `lay` puts it on the canvas.
   *
   * @param {string} key @param {(painter: CanvasPainter) => void} draw
   * @returns {CanvasPainter}
   */
  layer(key, draw) {
    this.kept ??= new CanvasPainter(document.createElement("canvas"));
    const { kept, theme, width, height, scale } = this;
    const full = `${key} ${width} ${height} ${this.ratio}`;
    if (this.keptKey !== full || kept.theme !== theme) {
      kept.begin(width, height, scale, theme);
      kept.context.setTransform(this.context.getTransform());
      draw(kept);
      this.keptKey = full;
    }
    return kept;
  }

  /** Drops the cached picture. */
  forget() {
    this.keptKey = null;
  }

  /** @param {CanvasPainter} layer */
  lay({ canvas }) {
    const { context, font } = this;
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(canvas, 0, 0);
    context.restore();
    this.font = font;
  }

  /** Runs `draw` at a fraction of the current opacity. @param {number} alpha @param {() => void} draw */
  faded(alpha, draw) {
    const { context } = this;
    const before = context.globalAlpha;
    context.globalAlpha = before * alpha;
    draw();
    context.globalAlpha = before;
  }

  /**
   * Runs `draw`, clipped to a rectangle.
   *
   * @param {number} x @param {number} y @param {number} width @param {number} height @param {() => void} draw
   */
  clipped(x, y, width, height, draw) {
    const { context } = this;
    const { font } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    draw();
    context.restore();
    this.font = font;
  }

  /**
   * Runs `draw`, clipped to a rectangle without its lower right corner.
   *
   * @param {Rect} box @param {number} corner @param {() => void} draw
   */
  withCutCorner([x, y, width, height], corner, draw) {
    const { context, font, theme } = this;
    const [right, bottom] = [x + width, y + height];
    context.save();
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(right, y);
    context.lineTo(right, bottom - corner);
    context.lineTo(right - corner, bottom);
    context.lineTo(x, bottom);
    context.clip();
    draw();
    context.restore();
    this.font = font;
    this.line(right - corner, bottom, right, bottom - corner, theme.faint);
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {Paint} paint */
  fill(x, y, width, height, paint) {
    this.context.fillStyle = paint;
    this.context.fillRect(x, y, width, height);
  }

  /**
   * An outline that lies inside the rectangle.
   *
   * @param {number} x @param {number} y @param {number} width @param {number} height @param {Paint} color
   * @param {number} [line] @param {number[]} [dash]
   */
  frame(x, y, width, height, color, line = 1, dash = []) {
    const { context } = this;
    context.strokeStyle = color;
    context.lineWidth = line;
    if (dash.length) context.setLineDash(dash);
    context.strokeRect(x + line / 2, y + line / 2, width - line, height - line);
    if (dash.length) context.setLineDash([]);
  }

  /**
   * A straight line.
   *
   * @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 @param {string} color
   * @param {number} [width] @param {number[]} [dash]
   */
  line(x1, y1, x2, y2, color, width = 1, dash = []) {
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

  /**
   * A filled triangle with its tip at (x, y), pointing "up", "down" or "right".
   *
   * @param {number} x @param {number} y @param {"up" | "down" | "right"} direction @param {string} color
   * @param {number} [size]
   */
  tip(x, y, direction, color, size = 6) {
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

  /** Sets the font if it differs, because setting it makes the browser recalculate styles. @param {Font} style */
  useFont(style) {
    const font = fontOf(style);
    if (font === this.font) return;
    this.font = font;
    this.context.font = font;
  }

  /**
   * Text on its baseline. `halo`, a colour, clears the ground behind it.
   *
   * @param {string} string @param {number} x @param {number} y @param {TextStyle} [style]
   */
  text(string, x, y, { size, bold, mono, color, align = "left", halo } = {}) {
    const { context } = this;
    this.useFont({ size, bold, mono });
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
  }

  /** Width of a string in the board's pixels. @param {string} string @param {Font} [style] @returns {number} */
  measure(string, style = {}) {
    const font = fontOf(style);
    let known = widths.get(font);
    if (!known) widths.set(font, (known = new Map()));
    if (!known.has(string)) {
      if (known.size >= MOST_WIDTHS) known.clear();
      this.useFont(style);
      known.set(string, this.context.measureText(string).width);
    }
    return /** @type {number} */ (known.get(string));
  }

  /**
   * The string, cut with an ellipsis so that it fits into `room`.
   *
   * @param {string} string @param {number} room @param {Font} [style]
   */
  cut(string, room, style) {
    if (this.measure(string, style) <= room) return string;
    let length = string.length;
    while (length > 0 && this.measure(`${string.slice(0, length)}…`, style) > room) length -= 1;
    return length ? `${string.slice(0, length)}…` : "";
  }

  /**
   * Fills a rectangle with the mark of a lane; null: no lane.
   *
   * @param {number} x @param {number} y @param {number} width @param {number} height @param {number | null} lane
   */
  mark(x, y, width, height, lane) {
    drawMark(this, x, y, width, height, lane);
  }

  /** The hue of a lane alone, for lines. @param {number | null} lane */
  hue(lane) {
    return markOf(this.theme, lane).hue;
  }

  /**
   * Fills nested rectangles: the second is a hole in the first, the third is filled again.
   *
   * @param {Rect[]} rects @param {Paint} paint
   */
  fillRects(rects, paint) {
    const { context } = this;
    context.beginPath();
    for (const rect of rects) context.rect(...rect);
    context.fillStyle = paint;
    context.fill("evenodd");
  }

  /** The length rounded to whole pixels of the device. @param {number} length */
  snap(length) {
    return Math.round(length * this.ratio) / this.ratio;
  }

  /** 45 degree hatching: "cached". @param {string} color @param {number} [thickness] */
  hatch(color, thickness = 1.4) {
    return this.tile(`hatch ${color} ${thickness}`, 7, (tile) => hatch(tile, color, thickness));
  }

  /** Crossed lines: "in vain". @param {string} color */
  crossHatch(color) {
    return this.tile(`crossed ${color}`, 5, (tile) => crossed(tile, color));
  }

  /**
   * The mark of a lane on a cell as device pixels, in a square of `side` pixels that begins with the cell. Cached.
   *
   * @param {number | null} lane @param {number} width @param {number} height @param {number} alpha
   * @returns {Tile}
   */
  markPixels(lane, width, height, alpha) {
    const key = `${lane} ${width} ${height}`;
    const known = this.tiles.get(key) ?? new Map();
    this.tiles.set(key, known);
    if (!known.has(alpha)) {
      const { theme, ratio } = this;
      const canvas = document.createElement("canvas");
      const side = Math.ceil(Math.max(width, height) * ratio) + 1;
      canvas.width = canvas.height = side;
      const painter = Object.assign(new CanvasPainter(canvas), { theme, ratio });
      const { context } = painter;
      context.globalAlpha = alpha;
      painter.fill(0, 0, side, side, painter.hue(lane)); // a cell may be a pixel larger
      context.scale(ratio, ratio);
      context.clearRect(0, 0, width, height);
      painter.mark(0, 0, painter.snap(width), painter.snap(height), lane);
      const { data } = context.getImageData(0, 0, side, side);
      known.set(alpha, { side, pixels: new Uint32Array(data.buffer), isCell: true });
    }
    return known.get(alpha);
  }

  /**
   * A paint as device pixels: a square of `side` pixels, which repeats. Cached.
   *
   * @param {Paint} paint @param {number} alpha
   * @returns {Tile}
   */
  pixels(paint, alpha) {
    const known = this.tiles.get(paint) ?? new Map();
    this.tiles.set(paint, known);
    if (!known.has(alpha)) {
      const side = Math.round(PERIOD * this.ratio);
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = side;
      const context = /** @type {CanvasRenderingContext2D} */ (
        canvas.getContext("2d", { willReadFrequently: true })
      );
      context.scale(this.ratio, this.ratio);
      context.globalAlpha = alpha;
      context.fillStyle = paint;
      context.fillRect(0, 0, PERIOD + 1, PERIOD + 1);
      const { data } = context.getImageData(0, 0, side, side);
      known.set(alpha, { side, pixels: new Uint32Array(data.buffer) });
    }
    return known.get(alpha);
  }

  /**
   * A repeating tile of `size` board pixels, drawn once at the device's resolution.
   *
   * @param {string} key @param {number} size @param {(context: CanvasRenderingContext2D) => void} draw
   * @returns {CanvasPattern}
   */
  tile(key, size, draw) {
    let pattern = this.patterns.get(key);
    if (!pattern) {
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = Math.max(1, Math.round(size * this.ratio));
      const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      context.scale(canvas.width / size, canvas.width / size);
      draw(context);
      pattern = /** @type {CanvasPattern} */ (this.context.createPattern(canvas, "repeat"));
      pattern.setTransform(new DOMMatrix().scale(size / canvas.width));
      this.patterns.set(key, pattern);
    }
    return pattern;
  }
}

/** @param {CanvasRenderingContext2D} context @param {string} color */
function crossed(context, color) {
  context.strokeStyle = color;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(-1, -1);
  context.lineTo(6, 6);
  context.moveTo(-1, 6);
  context.lineTo(6, -1);
  context.stroke();
}

/** @param {CanvasRenderingContext2D} context @param {string} color @param {number} thickness */
function hatch(context, color, thickness) {
  context.strokeStyle = color;
  context.lineWidth = thickness;
  context.beginPath();
  for (const offset of [-7, 0, 7]) {
    context.moveTo(offset - 2, 9);
    context.lineTo(offset + 9, -2);
  }
  context.stroke();
}
