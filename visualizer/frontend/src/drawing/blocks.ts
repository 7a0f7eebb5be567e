/**
 * The block map: physical KV memory after the cursor's step.
 *
 *   one owner    its mark; while it is not full, its slots
 *   shared       pale, with the owners' marks as ticks and the reference count
 *   cached       hatched; in the hue of the selected request if it would be a cache hit
 *   free         an outline
 *   cut corner   it has no window page: sliding layers do not have its KV; or it is not of the log's main KV cache group
 *   a word       the adapter whose KV it has
 *   changed      a triangle: the block went from one owner to another in this step
 *   never used   one outline around all of them, with their number
 *   selected     a ring; dashed if the request has just lost the block
 *
 * The selected request's blocks stand out, the others are drawn at 60% opacity.
 */

import { adapterOfBlock } from "../model/adapters.ts";
import type { Side } from "../model/block_changes.ts";
import type { Block, Frame } from "../model/frame.ts";
import type { Model } from "../model/model.ts";
import type { CellGrid } from "./block_grid.ts";
import type { CanvasPainter, Rect, Tile } from "./canvas_painter.ts";
import { drawCells } from "./cells.ts";
import { markOf } from "./marks.ts";

/** the blocks of the selected request */
export interface Claim {
  held: Set<number>; // its table
  lost: Set<number>; // the table that it lost in this step
  wanted: Set<number>; // cached blocks that a match would find
  table: ReturnType<Frame["table"]> | null;
}

/** what a block needs to be drawn */
interface BlockScene {
  model: Model;
  frame: Frame;
  grid: Pick<CellGrid, "x" | "y" | "label" | "cellWidth" | "body">;
  claim: Pick<Claim, "wanted">;
  selected: number | null;
}

/** untouched: nothing is faded */
type MapScene = BlockScene & { grid: CellGrid; claim: Claim; untouched: boolean };

type Cell = Pick<Block, "id" | "kind" | "owners" | "filled" | "slots" | "isCut">;

const OTHERS = 0.6;
const FORMED = 7; // px; smaller blocks are plain cells
const SHARED_TICKS = 0.42;
const CORNER = 0.4; // of a block's height
const OF_CUT = 0.45; // opacity of a block of a few pixels

/** The blocks of the selected request. */
export function claimOf(frame: Frame, model: Model, selected: number | null) {
  const claim: Claim = { held: new Set(), lost: new Set(), wanted: new Set(), table: null };
  if (selected == null || !model.request(selected)) return claim;
  const table = frame.table(selected);
  claim.table = table;
  for (const block of table.blocks) (table.lost ? claim.lost : claim.held).add(block);
  for (const block of frame.path(selected)?.blocks ?? []) claim.wanted.add(block);
  return claim;
}

/** Draws all blocks. */
export function drawBlocks(painter: CanvasPainter, scene: MapScene) {
  const { frame, grid, claim, model } = scene;
  const reach = model.measures.reach.at(frame.step - model.firstStep);
  const cells = frame.blocks.slice(0, Math.min(grid.count, reach));
  const chosen = !scene.untouched && claim.held.size + claim.lost.size > 0;
  const isMine = ({ id }: Block) => claim.held.has(id) || claim.lost.has(id);
  const alphaOf = (block: Block) => (chosen && !isMine(block) && !moved(block) ? OTHERS : 1);
  if (grid.body < FORMED) {
    // Thousands of blocks have few different tiles.
    const tiles: Map<number, Tile> = new Map();
    const unused = painter.pixels("transparent", 1);
    drawCells(painter, scene, (block) => {
      if (block.id >= reach) return unused;
      const mine = isMine(block);
      const alpha = alphaOf(block) * (block.isCut ? OF_CUT : 1);
      const look = tileKey(scene, block, mine) * 2 + Number(block.isCut);
      const key = look * 2 + Number(alphaOf(block) === 1);
      let tile = tiles.get(key);
      if (!tile) {
        tile = tileOf(painter, scene, block, mine, alpha);
        tiles.set(key, tile);
      }
      return tile;
    });
  } else {
    for (const block of cells) {
      const mine = isMine(block);
      painter.faded(alphaOf(block), () => {
        drawBody(painter, scene, block, mine);
        if (grid.label && model.settings.max_loras) drawAdapter(painter, scene, block.id);
      });
      if (grid.label) drawHead(painter, grid, block, mine);
    }
  }
  if (!grid.label) drawRowNumbers(painter, scene);
  for (const block of cells) {
    if (claim.held.has(block.id)) ring(painter, scene, block.id, []);
    else if (claim.lost.has(block.id)) ring(painter, scene, block.id, [4, 3]);
  }
  drawUnused(painter, scene, reach);
}

/**
 * One outline around the blocks that no request has used so far, with their number: the rest of a row, and the rows
 * below it.
 */
function drawUnused(painter: CanvasPainter, { grid, model }: MapScene, reach: number) {
  const { num_blocks: all } = model.settings;
  if (reach >= all) return;
  const { faint, muted } = painter.theme;
  const { columns, count, rest } = grid;
  const pitchY = grid.cellHeight + grid.gapY;
  const left = grid.x(0);
  const right = grid.x(columns - 1) + grid.cellWidth;
  const bottom = grid.y(0) + Math.ceil(count / columns) * pitchY - grid.gapY + rest;
  const within = reach % columns;
  const top = grid.y(0) + Math.ceil(reach / columns) * pitchY + (grid.label ? 4 : 0);
  const words = `${(all - reach).toLocaleString("en")} free, never used`;
  const isOneRow = top >= bottom;
  const hasLedge = within > 0 && reach < count;
  const start = hasLedge ? grid.x(within) : left;
  const ledge = hasLedge ? grid.y(reach) + grid.label : top;
  const corners = isOneRow
    ? [
        [start, ledge],
        [right, ledge],
        [right, ledge + grid.body],
        [start, ledge + grid.body],
      ]
    : [
        [start, ledge],
        [right, ledge],
        [right, bottom],
        [left, bottom],
        [left, top],
        [start, top],
      ];
  corners.forEach(([x, y], i) => {
    const [toX, toY] = corners[(i + 1) % corners.length];
    painter.line(x, y, toX, toY, faint, 1, [3, 2]);
  });
  const size = painter.measure(words) + 16;
  const isInRow = hasLedge && size < right - start && grid.body > 12;
  const [x, y] = isInRow ? [start, ledge + grid.body / 2 + 4] : [left, (top + bottom) / 2 + 4];
  if (isInRow || (!isOneRow && bottom - top > 12)) painter.text(words, x + 8, y, { color: muted });
}

/** Whether the block changed owners in this step and gets a mark. */
export const moved = ({ mark }: Pick<Block, "mark">) =>
  mark === "handed" || mark === "evicted" || mark === "copy";

function drawHead(painter: CanvasPainter, grid: CellGrid, block: Block, mine: boolean) {
  const { theme } = painter;
  const x = grid.x(block.id);
  const y = grid.y(block.id);
  painter.text(String(block.id), x, y + 9, { bold: mine, color: mine ? theme.ink : theme.muted });
  if (block.owners.length > 1) {
    painter.text(`×${block.owners.length}`, x + grid.cellWidth, y + 9, {
      bold: true,
      align: "right",
    });
  }
  const middle = x + grid.cellWidth / 2;
  const besideNumber = x + 7 * String(block.id).length + 5;
  if (moved(block)) painter.tip(Math.max(middle, besideNumber), y + 7, "down", theme.ink);
  else if (block.mark === "hit" && grid.cellWidth >= 44) {
    painter.text("hit", middle + 2, y + 9, { size: 10.5, bold: true, align: "center" });
  }
}

/** The name of its adapter, above the owners' marks of a shared block. */
function drawAdapter(painter: CanvasPainter, { frame, grid }: MapScene, id: number) {
  const name = adapterOfBlock(frame, id);
  if (!name) return;
  const { ground: plate } = painter.theme;
  const form = { size: 10.5, plate };
  painter.text(
    painter.cut(name, grid.cellWidth - 6, form),
    grid.x(id) + 3,
    grid.y(id) + grid.label + 12,
    form,
  );
}

/** The number of each row's first block, for maps without numbers at the blocks. */
function drawRowNumbers(painter: CanvasPainter, { grid, frame }: MapScene) {
  const every = Math.max(1, Math.ceil(14 / (grid.body + grid.gapY)));
  for (let row = 0; row * grid.columns < frame.blocks.length; row += every) {
    const first = row * grid.columns;
    painter.text(String(first), grid.left - 6, grid.y(first) + grid.body / 2 + 4, {
      align: "right",
      color: painter.theme.muted,
    });
  }
}

/** A number per look of a block, apart from its opacity. */
function tileKey({ claim, model }: MapScene, { id, kind, owners }: Block, mine: boolean) {
  if (kind === "free") return 0;
  if (kind === "shared") return 1;
  if (kind === "cached") return mine || claim.wanted.has(id) ? 2 : 3;
  return 5 + (model.laneOf(owners[0]) ?? -1);
}

/** The pixels of a block of a few pixels. */
function tileOf(
  painter: CanvasPainter,
  scene: MapScene,
  { id, kind, owners }: Block,
  mine: boolean,
  alpha: number,
) {
  const { claim, model, grid } = scene;
  const { theme } = painter;
  if (kind === "free") return painter.pixels(theme.band, alpha);
  if (kind === "shared") return painter.pixels(theme.shared, alpha);
  if (kind === "unshared")
    return painter.markPixels(model.laneOf(owners[0]), grid.cellWidth, grid.body, alpha);
  const wanted = mine || claim.wanted.has(id);
  const hatch = wanted
    ? painter.hatch(hueOfSelected(painter, scene), 1.8)
    : painter.hatch(theme.hatch);
  return painter.pixels(hatch, alpha);
}

/** The hue of the selected request: ink before it is admitted. */
function hueOfSelected(painter: CanvasPainter, { model, frame, selected }: BlockScene) {
  return painter.hue(model.laneOf(selected, frame.step));
}

function drawBody(painter: CanvasPainter, scene: BlockScene, block: Cell, mine: boolean) {
  const { grid } = scene;
  const box: Rect = [grid.x(block.id), grid.y(block.id) + grid.label, grid.cellWidth, grid.body];
  const draw = () => drawForm(painter, scene, block, mine, box);
  if (block.isCut) painter.withCutCorner(box, Math.max(4, grid.body * CORNER), draw);
  else draw();
}

function drawForm(
  painter: CanvasPainter,
  scene: BlockScene,
  block: Cell,
  mine: boolean,
  box: Rect,
) {
  const { model } = scene;
  const { theme } = painter;
  const [x, y, width, height] = box;
  if (block.kind === "free") {
    painter.frame(x, y, width, height, height > 12 ? theme.faint : theme.rule);
  } else if (block.kind === "cached") {
    const wanted = mine || scene.claim.wanted.has(block.id);
    if (wanted) painter.cached(...box, hueOfSelected(painter, scene), 1.8);
    else painter.cached(...box);
  } else if (block.kind === "shared") {
    drawShared(painter, scene, block, box);
  } else {
    const lane = model.laneOf(block.owners[0]);
    if (block.filled >= block.slots || height < 12) painter.mark(x, y, width, height, lane);
    else drawSlots(painter, block, lane, box);
  }
}

function drawShared(
  painter: CanvasPainter,
  { grid, model }: BlockScene,
  block: Cell,
  [x, y, width, height]: Rect,
) {
  painter.shared(x, y, width, height);
  const most = Math.max(1, Math.floor((width + 2) / 5));
  const owners = block.owners.slice(0, most);
  const tick = Math.round(height * SHARED_TICKS);
  if (!grid.label && height >= 22) {
    painter.text(`×${block.owners.length}`, x + width / 2, y + height - tick - 3, {
      size: 10.5,
      bold: true,
      align: "center",
    });
  }
  const gap = grid.label ? 2 : 1;
  const each = (width - gap * (owners.length - 1)) / owners.length;
  owners.forEach((owner, i) => {
    painter.mark(x + i * (each + gap), y + height - tick, each, tick, model.laneOf(owner));
  });
}

/**
 * A block that is not full: a bar per filled slot and an outline per empty one, or, if they are too narrow, one bar. A
 * texture does not show on them, so the mark is in the lower right corner.
 */
function drawSlots(
  painter: CanvasPainter,
  { filled, slots }: Cell,
  lane: number | null,
  [x, y, width, height]: Rect,
) {
  const { theme } = painter;
  const hue = painter.hue(lane);
  const gap = slots > 8 && width < 60 ? 0 : 1;
  const each = (width - gap * (slots - 1)) / slots;
  if (each < 3) {
    painter.frame(x, y, width, height, theme.faint, 0.8);
    painter.fill(x, y, (width * filled) / slots, height, hue);
  }
  for (let slot = 0; each >= 3 && slot < slots; slot += 1) {
    const left = x + slot * (each + gap);
    if (slot < filled) painter.fill(left, y, each, height, hue);
    else painter.frame(left, y, each, height, theme.faint, 0.8);
  }
  if (markOf(theme, lane).texture === "solid") return;
  const side = height > 26 ? 11 : height > 16 ? 9 : 6;
  const [left, top] = [x + width - side - 2, y + height - side - 2];
  painter.context.clearRect(left - 1, top - 1, side + 2, side + 2);
  painter.mark(left, top, side, side, lane);
}

function ring(painter: CanvasPainter, scene: MapScene, id: number, dash: number[]) {
  const { grid } = scene;
  const roomy = grid.label > 0;
  const around = roomy ? 3 : Math.min(2, grid.gapX);
  const line = grid.gapX >= 4 ? 2 : Math.min(2, grid.gapX + 0.5);
  const color = hueOfSelected(painter, scene);
  const x = grid.x(id) - around;
  const y = grid.y(id) - (roomy ? 2.5 : around);
  painter.frame(
    x,
    y,
    grid.cellWidth + 2 * around,
    grid.cellHeight + (roomy ? 5.5 : 2 * around),
    grid.gapX >= 4 ? color : painter.theme.ink,
    line,
    dash,
  );
}

/** The glyph beside a count in the header, 12 x 10. */
export function drawSwatch(painter: CanvasPainter, form: Block["kind"] | "cut") {
  const { theme } = painter;
  if (form === "cut") {
    painter.withCutCorner([0, 0, 12, 10], 6, () => painter.fill(0, 1, 12, 9, theme.muted));
    return;
  }
  if (form === "unshared") painter.fill(0, 1, 12, 9, theme.muted);
  else if (form === "shared") {
    painter.shared(0, 0, 12, 10);
    painter.fill(0, 5.5, 5.5, 4.5, painter.hue(0));
    painter.fill(6.5, 5.5, 5.5, 4.5, painter.hue(5));
  } else if (form === "cached") painter.cached(0, 1, 12, 9);
  else painter.frame(0, 1, 12, 9, theme.faint);
}

/** A block's cell before or after a step. */
export function drawSide(
  painter: CanvasPainter,
  { frame, model, selected }: { frame: Frame; model: Model; selected: number | null },
  { kind, owner, filled }: Side,
  box: Rect,
) {
  const [x, y, width, height] = box;
  const grid = { x: () => x, y: () => y, label: 0, cellWidth: width, body: height };
  const claim = { wanted: new Set<number>() };
  const block: Cell = {
    id: 0,
    kind,
    owners: owner === null ? [] : [owner],
    filled,
    slots: frame.state.blockSize,
    isCut: false,
  };
  drawBody(painter, { grid, model, frame, claim, selected }, block, false);
}
