/**
 * The highlighted block: a double ring and, if several requests share it, curves from its first owner's own
 * blocks through it to those of the other owners. They show where each block table continues alone.
 */

import type { Block, Frame } from "../model/frame.ts";
import type { Model } from "../model/model.ts";
import type { BlockGrid } from "./block_grid.ts";
import type { CanvasPainter } from "./canvas_painter.ts";

type Scene = { model: Model; frame: Frame; grid: BlockGrid; block: number };

const DOT = 3.5;

/** Draws the ring and the curves. */
export function drawHighlighted(painter: CanvasPainter, scene: Scene) {
  const { grid, frame, block } = scene;
  const highlighted = frame.blocks[block];
  if (!highlighted) return;
  const { ink, ground } = painter.theme;
  const [x, y] = [grid.x(block), grid.y(block) + grid.label];
  painter.frame(x - 1, y - 1, grid.cellWidth + 2, grid.body + 2, ground, 1);
  painter.frame(x - 2, y - 2, grid.cellWidth + 4, grid.body + 4, ink, 2);
  if (highlighted.owners.length < 2) return;
  for (const [i, owner] of firstOwnerFirst(scene, highlighted).entries()) {
    const own = firstOwnBlock(frame, owner);
    if (own != null) drawCurve(painter, scene, own, owner, i === 0);
  }
}

/** The owners of a block, in order of admission: the first admitted had the block first. */
function firstOwnerFirst({ model }: Scene, { owners }: Block) {
  const since = (id: number) => {
    const span = model.requestSpan(id);
    return span.admissions[0]?.step ?? span.forked?.step ?? 0;
  };
  return [...owners].sort((a, b) => since(a) - since(b) || a - b);
}

function firstOwnBlock(frame: Frame, owner: number) {
  return frame.table(owner).blocks.find((id) => frame.blocks[id].owners.length === 1);
}

/**
 * A curve between the shared block and a block of this owner alone; it starts with a dot if the owner had the block
 * first.
 */
function drawCurve(
  painter: CanvasPainter,
  { model, grid, block }: Scene,
  own: number,
  owner: number,
  isFirst: boolean,
) {
  const centre = (id: number): [number, number] => [
    grid.x(id) + grid.cellWidth / 2,
    grid.y(id) + grid.label + grid.body / 2,
  ];
  const [x, y] = centre(block);
  const [toX, toY] = centre(own);
  const { context, theme } = painter;
  const bend: [number, number] = [
    (x + toX) / 2 + (toY - y) * 0.16,
    (y + toY) / 2 - (toX - x) * 0.16,
  ];
  const trace = (color: string, width: number) => {
    context.beginPath();
    context.moveTo(x, y);
    context.quadraticCurveTo(...bend, toX, toY);
    context.strokeStyle = color;
    context.lineWidth = width;
    context.stroke();
  };
  trace(theme.ground, 5);
  trace(painter.hue(model.laneOf(owner)), 2.5);
  const [endX, endY] = isFirst ? [x, y] : [toX, toY];
  if (isFirst) painter.disc(toX, toY, DOT);
  arrowhead(painter, endX, endY, Math.atan2(endY - bend[1], endX - bend[0]));
}

function arrowhead({ context, theme }: CanvasPainter, x: number, y: number, angle: number) {
  context.beginPath();
  context.moveTo(x, y);
  for (const side of [-0.45, 0.45])
    context.lineTo(x - 9 * Math.cos(angle + side), y - 9 * Math.sin(angle + side));
  context.fillStyle = theme.ink;
  context.fill();
}
