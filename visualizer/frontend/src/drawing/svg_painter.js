/**
 * A painter whose pictures are SVG: the drawing functions of the board draw on it as on a canvas. Pictures that cache
 * pixels (`layer`, `pixels`) cannot be drawn.
 *
 * @typedef {{key: string, path: string}} Filled  a path of rectangles with one paint and opacity
 * @typedef {string | {id: string}} SvgPaint  a colour or a pattern
 * @typedef {{e: number, f: number, a: number, d: number}} Place  as in a DOMMatrix: offsets and scales
 *
 * @typedef {{styles: object, at: Place, clip: string | null, dash: number[]}} Kept  by `save`
 */

/** @import { Rect } from "./canvas_painter.js" */
/** @import { Theme } from "./palette.js" */
import { CanvasPainter, SANS } from "./canvas_painter.js";

// Characters that XML forbids and that a token's text may contain.
const NOT_IN_XML = /[^\t\n\r -\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
/** @type {Record<string, string>} */
const ANCHORS = { center: "middle", right: "end" };
const AVERAGE = 0.52; // em, a letter's width where there is no canvas to measure on

/** @type {Record<string, string>} */
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** @param {string} text @returns {string} */
const escaped = (text) => text.replace(NOT_IN_XML, "").replace(/[&<>"]/g, (sign) => ENTITIES[sign]);
/** @param {number} number */
const short = (number) => String(Math.round(number * 100) / 100);

export class SvgPainter extends CanvasPainter {
  constructor() {
    const context = new SvgContext();
    const canvas = { style: {}, getContext: () => context };
    super(/** @type {HTMLCanvasElement} */ (/** @type {unknown} */ (canvas)));
  }

  /** @param {number} width @param {number} height @param {number} scale @param {Theme} theme */
  begin(width, height, scale, theme) {
    Object.assign(this, { theme, ratio: 1, scale, width, height });
    return this;
  }

  /**
   * @param {string} key @param {number} size @param {(context: CanvasRenderingContext2D) => void} draw
   * @returns {CanvasPattern}
   */
  tile(key, size, draw) {
    let pattern = this.patterns.get(key);
    if (!pattern) {
      const tile = new SvgContext();
      draw(/** @type {CanvasRenderingContext2D} */ (/** @type {unknown} */ (tile)));
      pattern = /** @type {CanvasPattern} */ (
        /** @type {unknown} */ (contextOf(this).pattern(tile, size))
      );
      this.patterns.set(key, pattern);
    }
    return pattern;
  }

  /** The picture on the theme's ground. `title` names it for screen readers. @param {string} title */
  svg(title) {
    const { width, height, scale, theme } = this;
    const { definitions, elements } = contextOf(this);
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${short(width * scale)}" height="${short(height * scale)}" ` +
      `viewBox="0 0 ${short(width)} ${short(height)}" font-family="${escaped(SANS)}" role="img">` +
      `<title>${escaped(title)}</title><defs>${definitions.join("")}</defs>` +
      `<rect width="100%" height="100%" fill="${theme.ground}"/>${elements.join("")}</svg>`
    );
  }
}

/** The part of CanvasRenderingContext2D that the board's drawing uses; it moves and scales but does not rotate. */
class SvgContext {
  /** @type {string[]} */
  elements = [];
  /** @type {string[]} */
  definitions = [];
  globalAlpha = 1;
  /** @type {SvgPaint} */
  fillStyle = "#000";
  /** @type {SvgPaint} */
  strokeStyle = "#000";
  lineWidth = 1;
  /** @type {CanvasTextAlign} */
  textAlign = "left";
  font = "11px sans-serif";
  /** @type {number[]} */
  #dash = [];
  /** @type {string[]} */
  #path = [];
  /** @type {Kept[]} */
  #kept = [];
  /** @type {Place} */
  #at = { e: 0, f: 0, a: 1, d: 1 };
  /** The id of the clip path. @type {string | null} */
  #clip = null;
  /** The last element, if it is a path of rectangles. @type {Filled | null} */
  #filled = null;

  /** @param {number} x */
  #x = (x) => short(this.#at.a * x + this.#at.e);
  /** @param {number} y */
  #y = (y) => short(this.#at.d * y + this.#at.f);
  /** @param {number} length */
  #wide = (length) => short(this.#at.a * length);
  /** @param {number} length */
  #high = (length) => short(this.#at.d * length);

  save() {
    const { globalAlpha, fillStyle, strokeStyle, lineWidth, textAlign, font } = this;
    const styles = { globalAlpha, fillStyle, strokeStyle, lineWidth, textAlign, font };
    this.#kept.push({ styles, at: this.#at, clip: this.#clip, dash: this.#dash });
  }

  restore() {
    const { styles, at, clip, dash } = /** @type {Kept} */ (this.#kept.pop());
    Object.assign(this, styles);
    [this.#at, this.#clip, this.#dash] = [at, clip, dash];
  }

  /** @param {number} x @param {number} y */
  translate(x, y) {
    const { e, f, a, d } = this.#at;
    this.#at = { a, d, e: e + a * x, f: f + d * y };
  }

  /** @param {number} x @param {number} y */
  scale(x, y) {
    const { e, f, a, d } = this.#at;
    this.#at = { e, f, a: a * x, d: d * y };
  }

  /** @param {number[]} dash */
  setLineDash(dash) {
    this.#dash = dash;
  }

  /**
   * A pattern that repeats every `size`, with what is drawn on `tile`.
   *
   * @param {SvgContext} tile @param {number} size
   */
  pattern(tile, size) {
    const id = `p${this.definitions.length}`;
    this.definitions.push(
      `<pattern id="${id}" width="${size}" height="${size}" patternUnits="userSpaceOnUse">` +
        `${tile.elements.join("")}</pattern>`,
    );
    return { id };
  }

  // Paths

  beginPath() {
    this.#path = [];
  }

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.#path.push(`M${this.#x(x)} ${this.#y(y)}`);
  }

  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.#path.push(`L${this.#x(x)} ${this.#y(y)}`);
  }

  /** @param {number} x1 @param {number} y1 @param {number} x @param {number} y */
  quadraticCurveTo(x1, y1, x, y) {
    this.#path.push(`Q${this.#x(x1)} ${this.#y(y1)} ${this.#x(x)} ${this.#y(y)}`);
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  rect(x, y, width, height) {
    this.#path.push(
      `M${this.#x(x)} ${this.#y(y)}h${this.#wide(width)}v${this.#high(height)}h${this.#wide(-width)}z`,
    );
  }

  /** A whole circle. @param {number} x @param {number} y @param {number} radius */
  arc(x, y, radius) {
    const r = this.#wide(radius);
    const [left, right] = [this.#x(x - radius), this.#x(x + radius)];
    const middle = this.#y(y);
    this.#path.push(
      `M${left} ${middle}A${r} ${r} 0 1 1 ${right} ${middle}A${r} ${r} 0 1 1 ${left} ${middle}z`,
    );
  }

  /** Clips to the path, and to what was clipped before. */
  clip() {
    const id = `c${this.definitions.length}`;
    const before = this.#clip ? ` clip-path="url(#${this.#clip})"` : "";
    this.definitions.push(
      `<clipPath id="${id}"${before}><path d="${this.#path.join("")}"/></clipPath>`,
    );
    this.#clip = id;
  }

  /** @param {CanvasFillRule} [rule] */
  fill(rule) {
    const even = rule === "evenodd" ? ' fill-rule="evenodd"' : "";
    this.#add("path", `d="${this.#path.join("")}" fill="${paintOf(this.fillStyle)}"${even}`);
  }

  stroke() {
    this.#add("path", `d="${this.#path.join("")}" fill="none"${this.#line()}`);
  }

  // Shapes

  clearRect() {}

  /**
   * Rectangles of one paint that follow each other become one path, which is a third as long.
   *
   * @param {number} x @param {number} y @param {number} width @param {number} height
   */
  fillRect(x, y, width, height) {
    if (!(width > 0 && height > 0)) return;
    const paint = `fill="${paintOf(this.fillStyle)}"`;
    const key = `${paint} ${this.globalAlpha} ${this.#clip}`;
    const wide = this.#wide(width);
    const path = `M${this.#x(x)} ${this.#y(y)}h${wide}v${this.#high(height)}h-${wide}z`;
    if (this.#filled?.key === key) this.elements.pop();
    else this.#filled = { key, path: "" };
    const filled = this.#filled;
    filled.path += path;
    this.#add("path", `d="${filled.path}" ${paint}`);
    this.#filled = filled;
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  strokeRect(x, y, width, height) {
    this.#add("rect", `${this.#rect(x, y, width, height)} fill="none"${this.#line()}`);
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  #rect(x, y, width, height) {
    return (
      `x="${this.#x(x)}" y="${this.#y(y)}" ` +
      `width="${this.#wide(Math.max(0, width))}" height="${this.#high(Math.max(0, height))}"`
    );
  }

  #line() {
    const dash = this.#dash.length
      ? ` stroke-dasharray="${this.#dash.map(this.#wide).join(" ")}"`
      : "";
    return ` stroke="${paintOf(this.strokeStyle)}" stroke-width="${this.#wide(this.lineWidth)}"${dash}`;
  }

  // Text

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    this.#text(text, x, y, `fill="${paintOf(this.fillStyle)}"`);
  }

  /** @param {string} text @param {number} x @param {number} y */
  strokeText(text, x, y) {
    this.#text(text, x, y, `fill="none" stroke-linejoin="round"${this.#line()}`);
  }

  /** @param {string} text @param {number} x @param {number} y @param {string} paint */
  #text(text, x, y, paint) {
    const [, weight, size, family] = /** @type {RegExpExecArray} */ (
      /^(\d+ )?([\d.]+)px (.*)$/.exec(this.font)
    );
    const styles = [`font-size="${this.#high(Number(size))}"`];
    if (weight) styles.push(`font-weight="${weight.trim()}"`);
    if (family !== SANS) styles.push(`font-family="${escaped(family)}"`);
    const anchor = ANCHORS[this.textAlign];
    if (anchor) styles.push(`text-anchor="${anchor}"`);
    const attributes = `x="${this.#x(x)}" y="${this.#y(y)}" ${styles.join(" ")} ${paint}`;
    this.#add("text", `${attributes} xml:space="preserve"`, escaped(text));
  }

  /** @param {string} text */
  measureText(text) {
    const ruler = SvgContext.ruler;
    if (!ruler)
      return { width: text.length * AVERAGE * Number.parseFloat(this.font.replace(/^\d+ /, "")) };
    ruler.font = this.font;
    return ruler.measureText(text);
  }

  static ruler = globalThis.document?.createElement("canvas").getContext("2d");

  /** @param {string} name @param {string} attributes @param {string} [content] */
  #add(name, attributes, content) {
    const alpha = this.globalAlpha < 1 ? ` opacity="${short(this.globalAlpha)}"` : "";
    const clip = this.#clip ? ` clip-path="url(#${this.#clip})"` : "";
    this.#filled = null;
    const end = content === undefined ? "/>" : `>${content}</${name}>`;
    this.elements.push(`<${name} ${attributes}${alpha}${clip}${end}`);
  }
}

/** @param {SvgPaint} style */
const paintOf = (style) => (typeof style === "string" ? style : `url(#${style.id})`);

/** The context of a painter, which is not a canvas's. @param {SvgPainter} painter */
const contextOf = ({ context }) => /** @type {SvgContext} */ (/** @type {unknown} */ (context));
