/**
 * The motion of a preemption, over the finished picture of its step: elements that move once and are removed. It starts
 * when the reader arrives at the step, but not while the pointer is down, not when steps follow each other too quickly
 * to see it, and never if the reader prefers reduced motion.
 */

import type { Board } from "../board/board.ts";
import { Part } from "../board/part.ts";
import { keyframesOf, legsOf, movesOf } from "../drawing/handover.ts";
import { h } from "../drawing/html.ts";
import { paintSwatch } from "../drawing/marks.ts";
import { BLEED, HEADROOM } from "../drawing/timeline.ts";

const DURATION = 150; // ms

export class HandoverOverlay extends Part {
  element = h("div.handover", { "aria-hidden": "true" });
  /** When the step last changed. */
  movedAt = -DURATION;
  /** The step drawn last. */
  step: number | undefined;
  isHeld = false;

  constructor(board: Board) {
    super(board);
    const hold = ({ type }: Event) => (this.isHeld = type === "pointerdown");
    const options = { signal: board.signal, capture: true };
    board.root.addEventListener("pointerdown", hold, options);
    for (const name of ["pointerup", "pointercancel"])
      document.addEventListener(name, hold, options);
  }

  /** Starts or ends the motion if the board has just drawn another step. The first step drawn has none. */
  follow() {
    const { frame } = this.board;
    if (frame.step === this.step) return;
    const isFirst = this.step === undefined;
    this.step = frame.step;
    this.element.remove();
    if (isFirst) return;
    const now = performance.now();
    const isQuick = now - this.movedAt < DURATION;
    this.movedAt = now;
    if (isQuick || this.isHeld || !frame.story.preemptions.length) return;
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.start();
  }

  start() {
    const { model, frame, theme, root, parts, shown, time } = this.board;
    const map = parts.blocks;
    if (!time || !map || !shown.includes(time) || !shown.includes(map)) return;
    const lanes = { ...time.scene, ...this.cornerOf(time.lanes, HEADROOM) };
    const legs = legsOf(movesOf(frame), model, lanes, {
      grid: map.grid,
      ...this.cornerOf(map.canvas),
    });
    if (!legs.length) return;
    const elements = legs.map(({ request, block, box }) => {
      const element = h("i", { "data-block": block, "data-request": request });
      for (const [name, length] of Object.entries({
        left: box.x,
        top: box.y,
        width: box.width,
        height: box.height,
      }))
        element.style[name as "left" | "top" | "width" | "height"] = `calc(${length} * var(--px))`;
      paintSwatch(element, theme, model.laneOf(request));
      return element;
    });
    this.element.replaceChildren(...elements);
    root.append(this.element);
    const motions = elements.map((element, i) => element.animate(keyframesOf(legs[i]), DURATION));
    motions[0].onfinish = () => this.element.contains(elements[0]) && this.element.remove();
  }

  /** Where a canvas's drawing begins, in board pixels from the board's corner. */
  cornerOf(canvas: HTMLCanvasElement, headroom: number = 0) {
    const { root, unit } = this.board;
    const [inner, outer] = [canvas.getBoundingClientRect(), root.getBoundingClientRect()];
    return {
      x: (inner.left - outer.left) / unit + BLEED,
      y: (inner.top - outer.top) / unit + headroom,
    };
  }
}
