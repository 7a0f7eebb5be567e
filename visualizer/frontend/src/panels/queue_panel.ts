/**
 * The open queue: a row per waiting request with its age, its reasons step by step, and when it is admitted. It lies
 * over the tree, on the timeline's axis, so that nothing moves when it opens.
 */

import { Part } from "../board/part.ts";
import { patchChildren } from "../board/patch_children.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, hide, plural, pointIn } from "../drawing/html.ts";
import { drawQueue, queueRows, type Rows } from "../drawing/queue.ts";
import { halved, levelDot, wordNodes } from "../drawing/words_html.ts";
import { halfDot, missing } from "../model/knowledge.ts";
import { stuck, stuckWords } from "../model/stuck.ts";

const HEAD = 26;

export class QueuePanel extends Part {
  canvas = h("canvas", {
    role: "img",
    "aria-label": "Queue",
    click: (event) => this.select(event),
  });
  painter = new CanvasPainter(this.canvas);
  /** In board pixels, below the words. */
  room = 0;
  count = h("span.count.small.muted");
  stuck = h("p.stuck");
  element = h(
    "div.queue",
    { role: "group", "aria-label": "Queue", hidden: true },
    h(
      "h2.line",
      "Queue",
      this.count,
      h(
        "button.small",
        { "data-act": "close-queue", click: () => this.board.toggleQueue() },
        "close ×",
      ),
    ),
    this.stuck,
    this.canvas,
  );
  isOver?: boolean;
  rows?: Rows;

  /** Lays the queue over the tree; without a tree in view, below the timeline. */
  layout(tree: HTMLElement | undefined, time: HTMLElement) {
    const host = tree && !tree.hidden && !this.board.narrow ? tree : time;
    if (this.element.parentElement !== host) host.append(this.element);
    this.element.classList.toggle("over", host === tree);
    this.isOver = host === tree;
  }

  draw() {
    const { board } = this;
    hide(this.element, !board.store.queue);
    const shown = board.time?.scene;
    if (this.element.hidden || !shown) return;
    const { frame, model, unit, theme, store } = board;
    const { width, scale, columns } = shown;
    const queue = stuck(model, store.step);
    const words = stuckWords(frame, queue);
    const dot = queue.some(({ mark }) => mark === "inferred")
      ? [levelDot("inferred"), "\u00a0"]
      : [];
    const said = [...dot, ...wordNodes(words, board.context()), "."];
    patchChildren(this.stuck, words.length ? said : []);
    const above = HEAD + this.stuck.offsetHeight / unit;
    this.room = this.isOver ? this.element.clientHeight / unit - above : 240;
    this.rows = queueRows(frame, store.selected, this.room);
    const ages = new Map(queue.map((one) => [one.request, one]));
    const scene = { ...this.rows, model, frame, scale, columns, ages };
    const { step, selected } = store;
    this.painter.begin(width, this.room, unit, theme);
    drawQueue(this.painter, { ...scene, step, selected });
    const names = frame.waiting.slice(0, 40).map((id) => model.requestSpan(id).name);
    const waits = plural(frame.waitingCount, "request");
    const mark = halfDot(model, "waiting_reasons");
    const colours = mark && `; ${mark}the reasons are inferred`;
    const lines = board.narrow ? "" : "; each line runs from arrival or preemption to admission";
    const unknown =
      missing(model, "queue") || (frame.story.counted && `${waits}; this log does not say which`);
    patchChildren(this.count, halved(unknown || `${waits}, in order${lines}${colours}`));
    const content = names.join(", ") || unknown || "empty";
    this.canvas.setAttribute("aria-label", `Queue: ${content}`);
  }

  select(event: MouseEvent) {
    const [, y] = pointIn(this.canvas, event, this.board.unit);
    const id = this.rows?.shown[Math.floor(y / this.rows.pitch)];
    if (id != null) this.board.select(id);
  }
}
