/**
 * A static picture of a widget, as PNG, for hosts that do not render widgets.
 *
 * The page renders itself: an SVG image contains a copy of the element, and a canvas draws that image.
 */

import type { ThemeName } from "../board/theme.ts";
import { pngOf } from "./png.ts";

/** without a name: the host's theme */
export type Themed = { setTheme: (name?: ThemeName) => void };

const FITS = 110_000; // bytes; base64 needs a third more
const SCALES = [1, 0.75, 0.5];
// Characters that XML forbids and that a token's text may contain.
const NOT_IN_XML = /[^\t\n\r -\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;

/**
 * PNG bytes of `root` in a theme; null if the browser cannot draw it. `parts` are the boards and sheets in it, which
 * know how to set a theme.
 */
export async function pictureOf(
  root: HTMLElement,
  parts: Themed[],
  theme: ThemeName,
): Promise<Uint8Array | null> {
  const { width, height } = root.getBoundingClientRect();
  if (!width || !height) return null;
  // The browser does not paint in between, so the other theme is never visible.
  const isOther = root.dataset.theme !== theme;
  if (isOther) for (const part of parts) part.setTheme(theme);
  const copy = copyOf(root);
  if (isOther) for (const part of parts) part.setTheme();
  copy.style.cssText += `; width: ${width}px; height: ${height}px; margin: 0`;
  const markup = new XMLSerializer().serializeToString(copy).replace(NOT_IN_XML, "");
  const image = new Image(width, height);
  image.src = `data:image/svg+xml,${encodeURIComponent(
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">` +
      `<foreignObject width="100%" height="100%">${markup}</foreignObject></svg>`,
  )}`;
  try {
    await image.decode();
    let png = null;
    for (const scale of SCALES) {
      png = await pngOf(pixelsOf(image, width * scale, height * scale));
      if (png.length <= FITS) break;
    }
    return png;
  } catch {
    return null; // some browsers do not let a page read such a canvas
  }
}

/** A copy that looks the same without scripts. */
function copyOf(root: HTMLElement) {
  const copy = root.cloneNode(true) as HTMLElement;
  const drawn = root.querySelectorAll("canvas");
  for (const [i, canvas] of copy.querySelectorAll("canvas").entries())
    if (drawn[i].width && drawn[i].height)
      canvas.style.background = `url(${drawn[i].toDataURL()}) 0 0 / 100% 100%`;
  const inputs = root.querySelectorAll("input");
  for (const [i, input] of copy.querySelectorAll("input").entries())
    input.setAttribute("value", inputs[i].value);
  for (const table of copy.querySelectorAll(".alternative")) table.remove();
  return copy;
}

function pixelsOf(image: HTMLImageElement, width: number, height: number) {
  const canvas = Object.assign(document.createElement("canvas"), {
    width: Math.round(width),
    height: Math.round(height),
  });
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return context.getImageData(0, 0, canvas.width, canvas.height);
}
