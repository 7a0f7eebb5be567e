/**
 * Marks: what a request looks like in all panels. A mark belongs to a lane (`model/lanes.ts`):
 *
 *   hue      lane mod 10
 *   texture  lane div 10: solid, dots, or a keyline (a line inside the shape), through which the ground shows
 *
 * These are thirty marks. Stripes are none of them: hatching means "cached". A request that was never admitted has no
 * lane and a hollow mark. A mark always has its request's name beside it or in a tooltip.
 */

import type { CanvasPainter, Rect } from "./canvas_painter.ts";
import type { Theme } from "./palette.ts";

const TEXTURES = ["solid", "dots", "keyline"];
const PITCH = 4; // px between two dots
const RADIUS = 1.15;
const LEAST = 3; // px; smaller shapes are solid
const LOW = 8; // px; in a lower shape the keyline divides it into two bars

/** The hue and the texture of a lane; those of no lane are ink and hollow. */
export function markOf({ hues, ink }: Pick<Theme, "hues" | "ink">, lane: number | null) {
  if (lane === null) return { hue: ink, texture: "hollow" };
  const texture = TEXTURES[Math.floor(lane / hues.length) % TEXTURES.length];
  return { hue: hues[lane % hues.length], texture };
}

/** Draws the mark of a lane as a rectangle. */
export function drawMark(painter: CanvasPainter, rect: Rect, lane: number | null) {
  const { hue, texture } = markOf(painter.theme, lane);
  const isTiny = rect[2] < LEAST || rect[3] < LEAST;
  if (texture === "hollow") painter.frame(...rect, painter.theme.faint);
  else if (texture === "solid" || isTiny) painter.fill(...rect, hue);
  else if (texture === "dots") drawDots(painter, rect, hue);
  else painter.fillRects([rect, ...keyline(painter, rect)], hue);
}

/** Draws whole dots in the middle of the rectangle, and fills the space around them with the hue. */
function drawDots(painter: CanvasPainter, [x, y, width, height]: Rect, hue: string) {
  const across = PITCH * Math.max(1, Math.floor(width / PITCH));
  const down = PITCH * Math.max(1, Math.floor(height / PITCH));
  const left = painter.snap(x + Math.max(0, width - across) / 2);
  const top = painter.snap(y + Math.max(0, height - down) / 2);
  const inner: Rect = [
    left,
    top,
    Math.min(across, x + width - left),
    Math.min(down, y + height - top),
  ];
  painter.fillRects([[x, y, width, height], inner], hue);
  const paint = painter.tile(`dots ${hue}`, PITCH, (tile) => {
    tile.fillStyle = hue;
    tile.beginPath();
    tile.rect(0, 0, PITCH, PITCH);
    tile.arc(PITCH / 2, PITCH / 2, RADIUS, 0, 7);
    tile.fill("evenodd");
  });
  // A shape that is narrower than a tile shows the middle of the tile.
  const [shiftX, shiftY] = [Math.max(0, across - width) / 2, Math.max(0, down - height) / 2];
  const { context } = painter;
  context.translate(left - shiftX, top - shiftY);
  painter.fill(shiftX, shiftY, inner[2], inner[3], paint);
  context.translate(shiftX - left, shiftY - top);
}

/** The hole in the rectangle, and in a large one the middle that is filled again. */
function keyline(painter: CanvasPainter, [x, y, width, height]: Rect): Rect[] {
  if (height <= LOW) {
    const line = Math.max(painter.snap(height / 3), 1 / painter.ratio);
    return [[x, painter.snap(y + (height - line) / 2), width, line]];
  }
  const inset = height > 20 ? 4 : height > 12 ? 3 : 2;
  const line = painter.snap(height > 12 ? 2 : 1.6);
  const [innerWidth, innerHeight] = [width - 2 * inset, height - 2 * inset];
  if (innerWidth < line) return [[x + width / 3, y + inset, width / 3, innerHeight]];
  const hole: Rect = [x + inset, y + inset, innerWidth, innerHeight];
  if (innerWidth <= 2 * line + 1) return [hole];
  const middle: Rect = [
    x + inset + line,
    y + inset + line,
    innerWidth - 2 * line,
    innerHeight - 2 * line,
  ];
  return [hole, middle];
}

type SwatchAttributes = { style: string; "data-mark": string };

/** By theme and lane. */
const swatches: WeakMap<Theme, Map<number | null, SwatchAttributes>> = new WeakMap();

/**
 * The attributes that make an element the swatch of a lane. They are kept, because a browser takes long to write its own
 * style as text.
 */
export function swatchOf(theme: Theme, lane: number | null): SwatchAttributes {
  const known = swatches.get(theme) ?? new Map();
  swatches.set(theme, known);
  if (!known.has(lane)) {
    const element = document.createElement("i");
    paintSwatch(element, theme, lane);
    known.set(lane, {
      style: element.getAttribute("style"),
      "data-mark": element.getAttribute("data-mark"),
    });
  }
  return known.get(lane);
}

/** Paints an HTML element of 12 px as the swatch of a lane. */
export function paintSwatch(element: HTMLElement, theme: Theme, lane: number | null) {
  const { hue, texture } = markOf(theme, lane);
  const px = (number: number) => `calc(${number} * var(--px, 1px))`;
  const dot = `radial-gradient(circle, ${theme.ground} ${px(1.1)}, transparent ${px(1.4)})`;
  const background = {
    hollow: "none",
    solid: hue,
    dots: `${dot} 0 0 / ${px(PITCH)} ${px(PITCH)} space ${hue}`,
    keyline: hue,
  }[texture];
  const line = (width: string, color: string) => `inset 0 0 0 ${width} ${color}`;
  const boxShadow = {
    hollow: line("1px", theme.faint),
    keyline: `${line(px(2), hue)}, ${line(px(4), theme.ground)}`,
  }[texture];
  Object.assign(element.style, { background, boxShadow: boxShadow ?? "none" });
  element.dataset.mark = texture;
}
