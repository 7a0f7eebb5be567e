/**
 * The prefix tree of one replica. A prefix that the router expected there and that is gone is a dashed chain above the
 * tree, with the time of its eviction.
 */

import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, plural, visible } from "../drawing/html.ts";
import { duration } from "../model/duration.ts";
import { TreePanel } from "../panels/tree_panel.ts";
import { type GonePrefix, gonePrefix } from "./gone_prefix.ts";
import type { ReplicaBoard } from "./replica_board.ts";

const ROWS = 6;
const ROW = 34; // px
const SQUARE = 11;
const PITCH = SQUARE + 1.5;

export class ReplicaTree extends TreePanel<ReplicaBoard> {
  gone = h("canvas", { role: "img", hidden: true });
  gonePainter = new CanvasPainter(this.gone);

  constructor(replica: ReplicaBoard) {
    super(replica);
    this.canvas.before(this.gone);
    this.element.setAttribute("aria-label", `Prefix tree of replica ${replica.replica.id}`);
    this.element.dataset.replica = replica.replica.id;
    this.element.querySelector("h2")?.replaceChildren(`Replica ${replica.replica.id}`, this.count);
  }

  get mostRows() {
    return ROWS;
  }

  get height() {
    return ROWS * ROW + 6;
  }

  draw() {
    this.drawGone();
    super.draw();
  }

  write() {
    super.write();
    const { route } = this.board.cluster;
    const isChosen = route?.replica === this.board.replica.id;
    this.count.textContent = `prefix tree: ${this.count.textContent}${isChosen ? "; chosen" : ""}`;
  }

  /** The missing part of the selected decision's prefix, if it was expected here. */
  drawGone() {
    const { cluster, replica } = this.board;
    const { route, model } = cluster;
    const gone = route?.replica === replica.id ? gonePrefix(model, route) : null;
    this.gone.hidden = !gone;
    this.element.dataset.gone = gone ? `${gone.blocks}` : "";
    if (!gone || !route) return;
    const painter = this.gonePainter.begin(Number(this.width), ROW, 1, cluster.theme);
    const hue = cluster.hueOf(route);
    const span = model.spanOf(route);
    const size = model.runOf(route)?.model.settings.block_size ?? 1;
    const text = visible((span?.texts ?? []).slice(gone.from * size).join(""));
    const room = Math.floor((Number(this.width) - 12) / 6.6);
    painter.text(text.length > room ? `${text.slice(0, room - 1)}…` : text, 10, 11, {
      mono: true,
      color: painter.theme.muted,
    });
    const shown = Math.min(
      gone.blocks,
      Math.max(1, Math.floor((Number(this.width) - 190) / PITCH)),
    );
    for (let i = 0; i < shown; i += 1)
      painter.frame(10 + i * PITCH, 17, SQUARE, SQUARE, hue, 1.5, [3, 2]);
    const words = goneWords(gone, size);
    painter.text(words, 16 + shown * PITCH, 26, { bold: true });
    this.gone.setAttribute("aria-label", words);
  }
}

function goneWords({ blocks, at }: GonePrefix, size: number) {
  const what = `${plural(blocks * size, "token")} predicted`;
  return at === null ? `${what}; not there` : `${what}; evicted at ${duration(at)}`;
}
