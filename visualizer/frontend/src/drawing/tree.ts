/**
 * The prefix tree: text above a chain of squares, one per block, in the block map's glyphs.
 *
 * The selected request's path is drawn heavy in its hue. A half-filled square after a leaf is a block
 * that is not in the tree yet, because it is not full.
 */

import { adapterOf } from "../model/adapters.ts";
import type { Frame } from "../model/frame.ts";
import type { Model } from "../model/model.ts";
import type { Mark, TreeNode } from "../model/tree.ts";
import { blockList } from "../model/words.ts";
import type { CanvasPainter, TextStyle } from "./canvas_painter.ts";
import { plural, visible } from "./html.ts";
import type { TreeItem, TreeLayout } from "./tree_layout.ts";

export interface TreeScene {
  model: Model;
  frame: Frame;
  layout: TreeLayout;
  columns: number[]; // x of each level
  path: Set<number>; // the selected request's nodes
  width: number;
  rowHeight: number;
  narrow: boolean;
  selected: number | null;
  waiting: boolean; // the selected request waits, and its path is the one it would hit
}

const SQUARE = 11;
const PITCH = SQUARE + 1.5;
const MONO = { size: 11, mono: true };
const CHARACTER = 6.6;

/** where an item's chain is: its left end, its middle, and where the next level begins */
type Place = { x: number; y: number; end: number };

/** Row heights, in px. */
export const treeRow = (narrow: boolean, projector: boolean) => (narrow ? 34 : projector ? 32 : 33);

/** The x of each level and the width available to a chain. */
export function treeColumns(layout: TreeLayout, width: number, narrow: boolean) {
  const inner = (level: number) =>
    layout.items.flatMap((item) =>
      item.kind === "node" && item.level === level && item.children.length ? [item.node] : [],
    );
  const starts = [10];
  for (let level = 0; level + 1 < layout.levels; level += 1) {
    const even = Math.min(214, Math.max(64, (width - 300) / Math.max(1, layout.levels - 1)));
    const chains = inner(level).map(({ blocks, marks }) =>
      Math.max(blocks.length * PITCH + 40, marks.length && marks.length * 5 * CHARACTER + 90),
    );
    const chain = Math.max(0, ...chains);
    starts.push(starts[level] + (narrow ? 22 : Math.max(even, Math.min(chain, even * 1.5))));
  }
  return starts;
}

/** Draws the tree. */
export function drawTree(painter: CanvasPainter, scene: TreeScene) {
  const { layout } = scene;
  const y = yOf(scene);
  if (layout.rows) painter.disc(4, y(0), 3);
  for (const hot of [false, true]) {
    for (const item of layout.items)
      if (onPath(scene, item) === hot) drawBranch(painter, scene, item, hot);
  }
  painter.textsLast(() => {
    for (const item of layout.items) drawItem(painter, scene, item);
  });
}

const yOf =
  ({ rowHeight }: Pick<TreeScene, "rowHeight">): ((row: number) => number) =>
  (row) =>
    row * rowHeight + 22;

function onPath({ path, selected, waiting }: TreeScene, item: TreeItem) {
  if (item.kind === "request") return item.request === selected && !waiting;
  return item.kind === "node" && path.has(item.node.id);
}

/** A line from the parent's line down to this row, and along to its chain. */
function drawBranch(painter: CanvasPainter, scene: TreeScene, item: TreeItem, hot: boolean) {
  const { columns, narrow, model, selected } = scene;
  const y = yOf(scene);
  const { context, theme } = painter;
  const to: [x: number, y: number] = [columns[item.level], y(item.row)];
  const parent = item.parentItem;
  const fromX = parent ? (narrow ? columns[parent.level] + 5 : columns[item.level] - 12) : 4;
  const fromY = y(parent ? parent.row : 0);
  context.strokeStyle = hot ? painter.hue(model.laneOf(selected, scene.frame.step)) : theme.faint;
  context.lineWidth = hot ? 2.5 : 1.2;
  context.beginPath();
  if (parent && !narrow) {
    context.moveTo(columns[parent.level], fromY);
    context.lineTo(fromX, fromY);
  } else context.moveTo(fromX, fromY);
  if (fromY !== to[1]) {
    context.lineTo(fromX, to[1] - 6);
    context.quadraticCurveTo(fromX, to[1], fromX + 6, to[1]);
  }
  context.lineTo(...to);
  context.stroke();
}

function drawItem(painter: CanvasPainter, scene: TreeScene, item: TreeItem) {
  const { columns, width, narrow } = scene;
  const { parentItem } = item;
  const x = columns[item.level];
  const y = yOf(scene)(item.row);
  const end = item.children.length && !narrow ? columns[item.level + 1] - 14 : width;
  const place = { x, y, end };
  if (item.kind === "rest") {
    const { nodes, blocks } = item.folded;
    painter.text(`${plural(nodes, "more node")}, ${plural(blocks, "block")}`, x + 4, y + 4, {
      color: painter.theme.muted,
      plate: painter.theme.ground,
    });
    return;
  }
  if (item.kind === "request") {
    drawTail(painter, scene, item.request, { x: x + 2, y, end });
    const text = tailText(scene.frame, item.request);
    const of = !parentItem && scene.model.requestSpan(item.request);
    drawText(painter, text, place, painter.theme.muted, of);
    return;
  }
  const { node } = item;
  const length = node.marks.length || node.blocks.length;
  const shared = node.owners.length > 1 ? `×${node.owners.length}` : "";
  const reserve = item.children.length ? 10 + painter.measure(shared, { bold: true }) : 150;
  const most = Math.max(1, Math.floor((end - x - reserve) / PITCH));
  const chain = length > most ? Math.max(1, most - 3) : length;
  for (let i = 0; i < chain; i += 1) {
    const mark = node.marks[i];
    if (mark) drawMark(painter, mark, x + i * PITCH, y);
    else drawSquare(painter, scene, node, x + i * PITCH, y);
  }
  let next = x + chain * PITCH + 2;
  if (node.owners.length > 1)
    drawOwnerTicks(painter, scene, node.owners, x, y + SQUARE / 2, chain * PITCH - 1.5);
  const note = (text: string, style: TextStyle) => {
    const width = painter.measure(text, style);
    painter.fill(next - 3, y - 5, width + 6, 10, painter.theme.ground); // clears the line behind the text
    painter.text(text, next, y + 4, style);
    next += width + 6;
  };
  if (chain < length) note(`… ${length}`, { color: painter.theme.muted });
  if (shared) note(shared, { bold: true });
  if (item.folded)
    note(
      `${plural(item.folded.nodes - 1, "more node")}, ${plural(item.folded.blocks - node.blocks.length, "block")}`,
      { color: painter.theme.muted },
    );
  else if (!item.children.length) drawLeafWords(painter, scene, node, { x: next, y, end });
  const muted = node.idle && !node.marks.length && !scene.path.has(node.id);
  const text = node.title || textless(scene, node);
  const color = muted ? painter.theme.muted : painter.theme.ink;
  drawText(painter, text, place, color, !parentItem && node.parts[0]);
}

/** The text of a chain, above it, cut where the next level begins; at the root, first the adapter whose KV it is. */
function drawText(
  painter: CanvasPainter,
  whole: string,
  { x, y, end }: Place,
  color: string,
  of: Parameters<typeof adapterOf>[0] | false,
) {
  const adapter = of ? adapterOf(of) : "";
  const name = painter.cut(adapter, (end - x) / 2, { bold: true });
  if (name) painter.text(name, x, y - 9, { bold: true });
  const left = adapter ? x + painter.measure(name, { bold: true }) + 6 : x;
  const room = Math.floor((end - left) / CHARACTER);
  const text = visible(whole.slice(0, room + 1));
  painter.text(text.length > room ? `${text.slice(0, room - 1)}…` : text, left, y - 9, {
    ...MONO,
    color,
  });
}

/** "24 tokens" for a chain whose text the log does not have. */
function textless({ model }: TreeScene, { blocks }: TreeNode) {
  return `${plural(blocks.length * model.settings.block_size, "token")}: ${blockList(blocks)}`;
}

function tailText(frame: Frame, request: number) {
  const tail = frame.tails.find((one) => one.request === request);
  return (tail?.blocks ?? [])
    .slice(0, 12)
    .flatMap((id) => frame.blockTexts(id))
    .join("");
}

function drawLeafWords(
  painter: CanvasPainter,
  scene: TreeScene,
  node: TreeNode,
  { x, y, end }: Place,
) {
  const { theme } = painter;
  if (node.marks.length) {
    painter.text(node.places, x + 4, y + 4, { color: theme.muted, plate: theme.ground });
    return;
  }
  if (node.owners.length) {
    let next = x;
    for (const owner of node.owners.slice(0, 4))
      next = drawTail(painter, scene, owner, { x: next, y, end });
    return;
  }
  const { frame, model, selected } = scene;
  const mine = scene.path.has(node.id);
  const name = model.request(selected)?.name;
  const words = mine
    ? [
        `cached, lock 0: ${name} will hit it unless it is evicted first`,
        `cached: ${name} can hit it`,
        "cached, lock 0",
      ]
    : [
        `cached, lock 0${node.since !== null && frame.step > node.since ? `, idle ${plural(frame.step - node.since, "step")}` : ""}`,
        "cached",
      ];
  const text = words.find((candidate) => painter.measure(candidate) <= end - x - 6) ?? "";
  painter.text(text, x + 4, y + 4, { color: mine ? theme.ink : theme.muted, plate: theme.ground });
}

/** A request's blocks that are not in the tree, its name, and the number of their tokens. Returns the next x. */
function drawTail(
  painter: CanvasPainter,
  { frame, model }: TreeScene,
  request: number,
  { x, y, end }: Place,
) {
  const { theme } = painter;
  const span = model.requestSpan(request);
  const tail = frame.tails.find((candidate) => candidate.request === request);
  let next = x;
  for (const id of (tail?.blocks ?? []).slice(0, 12)) {
    const { filled, slots } = frame.blocks[id];
    painter.fill(next, y - SQUARE / 2, SQUARE, SQUARE, theme.ground);
    painter.mark(next, y - SQUARE / 2, (SQUARE * filled) / slots, SQUARE, span.lane);
    painter.frame(next, y - SQUARE / 2, SQUARE, SQUARE, painter.hue(span.lane));
    next += SQUARE + 4;
  }
  painter.text(span.name, next + 2, y + 4, { bold: true, plate: theme.ground });
  next += painter.measure(span.name, { bold: true }) + 8;
  if (tail?.tokens) {
    const words = `+${plural(tail.tokens, "token")}`;
    if (next + painter.measure(words) < end)
      painter.text(words, next, y + 4, { color: theme.muted, plate: theme.ground });
    next += painter.measure(words) + 10;
  }
  return next;
}

function drawSquare(
  painter: CanvasPainter,
  { model, frame, path, selected }: TreeScene,
  node: TreeNode,
  x: number,
  y: number,
) {
  const { theme } = painter;
  const top = y - SQUARE / 2;
  painter.fill(x, top, SQUARE, SQUARE, theme.ground);
  if (!node.owners.length) {
    const hue = painter.hue(model.laneOf(selected, frame.step));
    if (path.has(node.id)) painter.cached(x, top, SQUARE, SQUARE, hue, 1.8);
    else painter.cached(x, top, SQUARE, SQUARE);
  } else if (node.owners.length > 1) painter.shared(x, top, SQUARE, SQUARE);
  else painter.mark(x, top, SQUARE, SQUARE, model.laneOf(node.owners[0]));
}

/**
 * A block that is known by its hash: in the GPU a whole square, elsewhere the lower half of one, in both a square
 * with a bar below it. Dashed if it is not in the cache.
 */
function drawMark(painter: CanvasPainter, { media }: Mark, x: number, y: number) {
  const { theme } = painter;
  const top = y - SQUARE / 2;
  painter.fill(x, top, SQUARE, SQUARE, theme.ground);
  if (!media.length) return painter.frame(x, top, SQUARE, SQUARE, theme.muted, 1, [2, 2]);
  const onGpu = media.some((place) => place.startsWith("GPU"));
  const below = media.some((place) => !place.startsWith("GPU"));
  const height = onGpu ? SQUARE : SQUARE / 2;
  painter.cached(x, top + SQUARE - height, SQUARE, height);
  if (onGpu && below) painter.fill(x, top + SQUARE + 2, SQUARE, 2, theme.ink);
}

/** The marks of requests side by side in `width`, as far as they fit. */
export function drawOwnerTicks(
  painter: CanvasPainter,
  { model }: Pick<TreeScene, "model">,
  owners: number[],
  x: number,
  y: number,
  width: number,
) {
  const shown = owners.slice(0, Math.max(1, Math.floor(width / 5)));
  const each = width / shown.length;
  shown.forEach((owner, i) => {
    painter.mark(x + i * each, y, Math.max(3, each - 1), 4, model.laneOf(owner));
  });
}

/** The item under a point, or undefined. */
export function treeItemAt(scene: TreeScene, x: number, y: number) {
  const row = Math.floor((y - 22 + scene.rowHeight * 0.6) / scene.rowHeight);
  return scene.layout.items
    .filter((item) => item.row === row && x >= scene.columns[item.level] - 4)
    .at(-1);
}
