/**
 * A painter whose pictures are SVG: the drawing functions of the board draw on it as on a canvas. Pictures that cache
 * pixels (`layer`, `pixels`) cannot be drawn.
 */

import { CanvasPainter, type Rect, SANS } from "./canvas_painter.ts";
import type { Theme } from "./palette.ts";

/** a path of rectangles with one paint and opacity */
type Filled = { key: string; path: string };

/** a colour or a pattern */
type SvgPaint = string | { id: string };

/** as in a DOMMatrix: offsets and scales */
type Place = { e: number; f: number; a: number; d: number };

/** by `save` */
type Kept = { styles: object; at: Place; clip: string | null; dash: number[] };

// Characters that XML forbids and that a token's text may contain.
const NOT_IN_XML = /[^\t\n\r -\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
const ANCHORS: Record<string, string> = { center: "middle", right: "end" };
const AVERAGE = 0.52; // em, a letter's width where there is no canvas to measure on

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

const escaped = (text: string): string =>
  text.replace(NOT_IN_XML, "").replace(/[&<>"]/g, (sign) => ENTITIES[sign]);
const short = (number: number) => String(Math.round(number * 100) / 100);

export class SvgPainter extends CanvasPainter {
  constructor() {
    const context = new SvgContext();
    const canvas = { style: {}, getContext: () => context };
    super(canvas as unknown as HTMLCanvasElement);
  }

  begin(width: number, height: number, scale: number, theme: Theme) {
    Object.assign(this, { theme, ratio: 1, scale, width, height });
    return this;
  }

  patternOf(size: number, draw: (context: CanvasRenderingContext2D) => void) {
    const tile = new SvgContext();
    draw(tile as unknown as CanvasRenderingContext2D);
    return contextOf(this).pattern(tile, size) as unknown as CanvasPattern;
  }

  /** The picture on the theme's ground. `title` names it for screen readers. */
  svg(title: string) {
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
  elements: string[] = [];
  definitions: string[] = [];
  globalAlpha = 1;
  fillStyle: SvgPaint = "#000";
  strokeStyle: SvgPaint = "#000";
  lineWidth = 1;
  textAlign: CanvasTextAlign = "left";
  font = "11px sans-serif";
  #dash: number[] = [];
  #path: string[] = [];
  #kept: Kept[] = [];
  #at: Place = { e: 0, f: 0, a: 1, d: 1 };
  /** The id of the clip path. */
  #clip: string | null = null;
  /** The last element, if it is a path of rectangles. */
  #filled: Filled | null = null;

  #x = (x: number) => short(this.#at.a * x + this.#at.e);
  #y = (y: number) => short(this.#at.d * y + this.#at.f);
  #wide = (length: number) => short(this.#at.a * length);
  #high = (length: number) => short(this.#at.d * length);

  save() {
    const { globalAlpha, fillStyle, strokeStyle, lineWidth, textAlign, font } = this;
    const styles = { globalAlpha, fillStyle, strokeStyle, lineWidth, textAlign, font };
    this.#kept.push({ styles, at: this.#at, clip: this.#clip, dash: this.#dash });
  }

  restore() {
    const { styles, at, clip, dash } = this.#kept.pop() as Kept;
    Object.assign(this, styles);
    [this.#at, this.#clip, this.#dash] = [at, clip, dash];
  }

  getTransform() {
    return this.#at;
  }

  translate(x: number, y: number) {
    const { e, f, a, d } = this.#at;
    this.#at = { a, d, e: e + a * x, f: f + d * y };
  }

  scale(x: number, y: number) {
    const { e, f, a, d } = this.#at;
    this.#at = { e, f, a: a * x, d: d * y };
  }

  setLineDash(dash: number[]) {
    this.#dash = dash;
  }

  /** A pattern that repeats every `size`, with what is drawn on `tile`. */
  pattern(tile: SvgContext, size: number) {
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

  moveTo(x: number, y: number) {
    this.#path.push(`M${this.#x(x)} ${this.#y(y)}`);
  }

  lineTo(x: number, y: number) {
    this.#path.push(`L${this.#x(x)} ${this.#y(y)}`);
  }

  quadraticCurveTo(x1: number, y1: number, x: number, y: number) {
    this.#path.push(`Q${this.#x(x1)} ${this.#y(y1)} ${this.#x(x)} ${this.#y(y)}`);
  }

  rect(...box: Rect) {
    this.#path.push(this.#around(box));
  }

  #around([x, y, width, height]: Rect) {
    return `M${this.#x(x)} ${this.#y(y)}h${this.#wide(width)}v${this.#high(height)}h${this.#wide(-width)}z`;
  }

  /** A whole circle. */
  arc(x: number, y: number, radius: number) {
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

  fill(rule?: CanvasFillRule) {
    const even = rule === "evenodd" ? ' fill-rule="evenodd"' : "";
    this.#add("path", `d="${this.#path.join("")}" fill="${paintOf(this.fillStyle)}"${even}`);
  }

  stroke() {
    this.#add("path", `d="${this.#path.join("")}" fill="none"${this.#line()}`);
  }

  // Shapes

  clearRect() {}

  /** Rectangles of one paint that follow each other become one path, which is a third as long. */
  fillRect(x: number, y: number, width: number, height: number) {
    if (!(width > 0 && height > 0)) return;
    const paint = `fill="${paintOf(this.fillStyle)}"`;
    const key = `${paint} ${this.globalAlpha} ${this.#clip}`;
    if (this.#filled?.key === key) this.elements.pop();
    else this.#filled = { key, path: "" };
    const filled = this.#filled;
    filled.path += this.#around([x, y, width, height]);
    this.#add("path", `d="${filled.path}" ${paint}`);
    this.#filled = filled;
  }

  strokeRect(x: number, y: number, width: number, height: number) {
    const size = [this.#wide(Math.max(0, width)), this.#high(Math.max(0, height))];
    const box = `x="${this.#x(x)}" y="${this.#y(y)}" width="${size[0]}" height="${size[1]}"`;
    this.#add("rect", `${box} fill="none"${this.#line()}`);
  }

  #line() {
    const dash = this.#dash.length
      ? ` stroke-dasharray="${this.#dash.map(this.#wide).join(" ")}"`
      : "";
    return ` stroke="${paintOf(this.strokeStyle)}" stroke-width="${this.#wide(this.lineWidth)}"${dash}`;
  }

  // Text

  fillText(text: string, x: number, y: number) {
    this.#text(text, x, y, `fill="${paintOf(this.fillStyle)}"`);
  }

  strokeText(text: string, x: number, y: number) {
    this.#text(text, x, y, `fill="none" stroke-linejoin="round"${this.#line()}`);
  }

  #text(text: string, x: number, y: number, paint: string) {
    const [, weight, size, family] = /^(\d+ )?([\d.]+)px (.*)$/.exec(this.font) as RegExpExecArray;
    const styles = [`font-size="${this.#high(Number(size))}"`];
    if (weight) styles.push(`font-weight="${weight.trim()}"`);
    if (family !== SANS) styles.push(`font-family="${escaped(family)}"`);
    const anchor = ANCHORS[this.textAlign];
    if (anchor) styles.push(`text-anchor="${anchor}"`);
    const attributes = `x="${this.#x(x)}" y="${this.#y(y)}" ${styles.join(" ")} ${paint}`;
    this.#add("text", `${attributes} xml:space="preserve"`, escaped(text));
  }

  measureText(text: string) {
    const ruler = SvgContext.ruler;
    if (!ruler)
      return { width: text.length * AVERAGE * Number.parseFloat(this.font.replace(/^\d+ /, "")) };
    ruler.font = this.font;
    return ruler.measureText(text);
  }

  static ruler = globalThis.document?.createElement("canvas").getContext("2d");

  #add(name: string, attributes: string, content?: string) {
    const alpha = this.globalAlpha < 1 ? ` opacity="${short(this.globalAlpha)}"` : "";
    const clip = this.#clip ? ` clip-path="url(#${this.#clip})"` : "";
    this.#filled = null;
    const end = content === undefined ? "/>" : `>${content}</${name}>`;
    this.elements.push(`<${name} ${attributes}${alpha}${clip}${end}`);
  }
}

const paintOf = (style: SvgPaint) => (typeof style === "string" ? style : `url(#${style.id})`);

/** The context of a painter, which is not a canvas's. */
const contextOf = ({ context }: SvgPainter) => context as unknown as SvgContext;
