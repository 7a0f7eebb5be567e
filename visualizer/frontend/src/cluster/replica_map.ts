/**
 * The KV blocks of one replica in small. The selected request's blocks have a ring, dashed if it has lost them. When its
 * blocks move to another replica, both show the move: blocks that leave one, dashed once they are gone, and arrive at the
 * other.
 */

import { describeBlock } from "../board/descriptions.ts";
import { Part } from "../board/part.ts";
import type { BlockGrid } from "../drawing/block_grid.ts";
import { claimOf } from "../drawing/blocks.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, plural, pointIn } from "../drawing/html.ts";
import { drawMiniMap, miniGrid } from "../drawing/mini_map.ts";
import { duration } from "../model/duration.ts";
import type { Model } from "../model/model.ts";
import type { ReplicaBoard } from "./replica_board.ts";

const ROW = 18; // px of a move
const SQUARE = 11;
const PITCH = SQUARE + 1.5;
const ARROW = 18;
const BEFORE = 0.42; // opacity of a move that has not happened

export class ReplicaMap extends Part<ReplicaBoard> {
  grid: BlockGrid | null = null;
  canvas = h("canvas", { role: "img", click: (event) => this.clicked(event) });
  painter = new CanvasPainter(this.canvas);
  words = h("span.count.small.muted");
  moved = h("canvas.moved", { role: "img" });
  movedPainter = new CanvasPainter(this.moved);
  element: HTMLElement;

  constructor(board: ReplicaBoard) {
    super(board);
    const { id } = board.replica;
    this.element = h(
      "section.blocks",
      { "aria-label": `KV blocks of replica ${id}`, "data-replica": id },
      h("h2.cut", "KV blocks", this.words),
      this.canvas,
      this.moved,
    );
    board.tooltip.listen(
      this.canvas,
      (event) => this.blockAt(event),
      (id) => describeBlock(board.model, board.frame, id),
    );
  }

  draw() {
    const { board, painter } = this;
    const { model, frame, theme, selected } = board;
    const width = this.element.clientWidth;
    const used = usedIn(model);
    const grid = miniGrid(used, width);
    this.grid = grid;
    painter.begin(width, grid.height + 2, 1, theme);
    drawMiniMap(painter, frame.blocks.slice(0, used), grid, (id) => model.laneOf(id, frame.step));
    const claim = claimOf(frame, model, selected);
    const table = claim.table?.blocks ?? [];
    for (const block of table) {
      if (block >= used) continue;
      const [x, y] = [grid.x(block) - 1, grid.y(block) - 1];
      const dash = claim.table?.lost ? [3, 2] : [];
      painter.frame(x, y, grid.cellWidth + 2, grid.body + 2, theme.ink, 1.5, dash);
    }
    Object.assign(this.element.dataset, frame.counts, {
      held: claim.held.size,
      lost: claim.lost.size,
    });
    this.#drawMoves();
  }

  write() {
    const { model, frame, replica } = this.board;
    const { unshared, shared, cached } = frame.counts;
    const never = model.settings.num_blocks - usedIn(model);
    const rest = never > 0 ? `; ${never.toLocaleString("en")} never used` : "";
    const words = `${unshared + shared} used, ${cached} cached${rest}`;
    this.words.textContent = words;
    this.canvas.setAttribute("aria-label", `KV blocks of replica ${replica.id}: ${words}`);
  }

  /** The selected request's blocks that leave this replica, or arrive, at the time of the cursor or later. */
  #drawMoves() {
    const { cluster, replica } = this.board;
    const { id } = replica;
    const moves = (cluster.selected?.moves ?? []).filter((move) =>
      [move.source, move.target].includes(id),
    );
    this.element.dataset.moved = `${moves.length}`;
    this.moved.hidden = !moves.length;
    const width = this.element.clientWidth;
    const painter = this.movedPainter.begin(width, ROW * moves.length + 2, 1, cluster.theme);
    const texts = moves.map((move, i) => {
      const leaves = move.source === id;
      const isOver = cluster.state.at >= move.at + move.us;
      const lane = cluster.model.laneOf(cluster.selected?.id ?? null);
      const y = 4 + i * ROW;
      const shown = Math.min(move.blocks, Math.max(1, Math.floor((width - 200) / PITCH)));
      const start = leaves ? 0 : ARROW + 4;
      painter.faded(isOver ? 1 : BEFORE, () => {
        for (let k = 0; k < shown; k += 1) {
          const x = start + k * PITCH;
          if (leaves && isOver) painter.frame(x, y, SQUARE, SQUARE, painter.hue(lane), 1.5, [3, 2]);
          else painter.mark(x, y, SQUARE, SQUARE, lane);
        }
        const arrow = leaves ? start + shown * PITCH + 2 : 0;
        painter.line(arrow, y + 5.5, arrow + ARROW - 4, y + 5.5, painter.theme.ink, 1.5);
        painter.tip(arrow + ARROW, y + 5.5, "right", painter.theme.ink);
      });
      const where = leaves ? `to replica ${move.target}` : `from replica ${move.source}`;
      const words = `${plural(move.blocks, "block")} ${where} at ${duration(move.at)}`;
      painter.text(words, start + shown * PITCH + (leaves ? ARROW + 8 : 6), y + 10);
      return words;
    });
    this.moved.setAttribute("aria-label", texts.join("; "));
  }

  /** The block under the pointer, or null. */
  blockAt(event: MouseEvent) {
    const id = this.grid?.at(...pointIn(this.canvas, event)) ?? -1;
    return id < 0 ? null : id;
  }

  clicked(event: MouseEvent) {
    const id = this.blockAt(event);
    const [owner] = id === null ? [] : this.board.frame.blocks[id].owners;
    if (owner !== undefined) this.board.select(owner);
  }
}

/** How many blocks the run has used. */
const usedIn = ({ measures }: Model) => measures.reach.at(measures.length - 1) || 1;
