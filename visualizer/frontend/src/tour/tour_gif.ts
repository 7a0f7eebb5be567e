/** A tour as a moving picture: one frame per scene, shown for as long as its sentences take to read. */

import { THEMES } from "../drawing/palette.ts";
import { GifWriter } from "../host/gif.ts";
import { LitPainter } from "./lit_painter.ts";
import { drawScene } from "./pictures.ts";
import { type Scene, spansOf, type TourHost } from "./scenes.ts";

const SIZE = { width: 960, height: 600, letters: 24 };
const PER_LETTER = 45; // ms
const LEAST = 3000;

/** Saves the tour; `tell` says how far it is. */
export async function saveGif(host: TourHost, scenes: Scene[], tell: (words: string) => void) {
  const canvas = document.createElement("canvas");
  const gif = new GifWriter(SIZE.width, SIZE.height);
  for (const [index, scene] of scenes.entries()) {
    tell(`Drawing ${index + 1} of ${scenes.length}`);
    await new Promise((resolve) => setTimeout(resolve)); // the page's turn
    const { pixels, letters } = frameOf(canvas, host, scene);
    gif.add(pixels, Math.max(LEAST, PER_LETTER * letters));
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(gif.blob());
  link.download = "tour.gif";
  link.click();
  URL.revokeObjectURL(link.href);
  tell("");
}

/** A scene as opaque pixels of the size of the GIF, on any screen. */
function frameOf(canvas: HTMLCanvasElement, host: TourHost, scene: Scene) {
  const model = host.modelOf(scene, scene.run);
  const nameOf = (id: number) => model?.request(id)?.name ?? host.nameOf?.(id);
  const spans = spansOf(scene, nameOf);
  const painter = new LitPainter(canvas);
  const laneOf = (id: number) => model?.laneOf(id, scene.step ?? undefined) ?? null;
  const { width, height, letters } = SIZE;
  drawScene(painter, host, scene, spans, laneOf, [width, height, letters], THEMES.light);
  const { ratio } = painter;
  const plain = Object.assign(document.createElement("canvas"), { width, height });
  const context = plain.getContext("2d") as CanvasRenderingContext2D;
  context.drawImage(canvas, 0, 0, width * ratio, height * ratio, 0, 0, width, height);
  const pixels = context.getImageData(0, 0, width, height);
  return { pixels, letters: spans.reduce((sum, { text }) => sum + text.length, 0) };
}
